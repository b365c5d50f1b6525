"""Plays elastic training without processes: members are lost at any place, and come.

What is real is where members take their samples from: each has its own ElasticSampler, or its own
ElasticStreams. What all of them note is a history, for histories.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from histories import Applied, Event, Taken

from corro.elastic import Step

DATA_EPOCHS = 2


class Member:
    """A process with what it takes its samples from."""

    def __init__(self, number: int, source: Any) -> None:
        self.number = number
        self.source = source  # With a `place` that can be set.
        self.steps = 0


Steps = Callable[[list[Member]], Iterator[Sequence[Step]]]


def steps_of_samplers(members: list[Member]) -> Iterator[Sequence[Step]]:
    """Yields each step as all members have it."""
    return zip(*(one.source.steps() for one in members), strict=True)


def play(random: random.Random, make: Callable[[], Any], steps: Steps) -> list[Event]:
    """Trains while members are lost at any place and come; returns what they have noted."""
    history: list[Event] = []
    members: list[Member] = []
    joins, number = random.randint(1, 5), 0
    for epoch in range(1000):
        members += [Member(number + i, make()) for i in range(joins)]
        number += joins
        meet(members)
        lost = play_epoch(random, epoch, members, history, steps)
        if lost is None:
            return history
        members = [one for one in members if one not in lost]
        joins = random.choice((0, 0, 1, 2))
    raise AssertionError("it does not end")


def meet(members: list[Member]) -> None:
    """What State.sync() does: all take the state of the first that has most steps."""
    root = max(members, key=lambda one: one.steps)
    for rank, one in enumerate(members):
        one.source.place = (rank, len(members))
        one.source.load_state_dict(root.source.state_dict())
        one.steps = root.steps


def play_epoch(
    random: random.Random, epoch: int, members: list[Member], history: list[Event], steps: Steps
) -> list[Member] | None:
    """Takes steps until the epoch ends, and returns who was lost; None once all is done."""
    while members[0].source.epoch < DATA_EPOCHS:
        for of_members in steps(members):
            history += map(taken, members, [epoch] * len(members), of_members)
            is_over = random.random() < 0.15
            # A reduction may have ended on some ranks only when others were lost.
            few = random.choice((0, len(members), random.randint(0, len(members))))
            appliers = random.sample(members, few) if is_over else members
            for one, step in zip(members, of_members, strict=True):
                if one in appliers:
                    history.append(Applied(member=one.number, epoch=epoch, step=one.steps))
                    step.record()
                    one.steps += 1
            if is_over:
                return random.sample(members, random.randint(0, len(members) - 1))
        for one in members:
            one.source.set_epoch(one.source.epoch + 1)
    return None


def flat(batches: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(batches))


def taken(one: Member, epoch: int, step: Step) -> Taken:
    rank, ranks = one.source.place
    batches = list(step)
    return Taken(
        member=one.number,
        epoch=epoch,
        rank=rank,
        ranks=ranks,
        step=one.steps,
        data_epoch=one.source.epoch,
        samples=tuple(flat(batch for batch, weight in batches if weight > 0)),
        weight=sum(weight for _, weight in batches),
    )
