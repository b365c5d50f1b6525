"""Streams of elastic training, in no job; test_elastic_samples.py has real ranks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import pytest
from elastic_member import be_no_rank
from elastic_play import DATA_EPOCHS, Member, play
from histories import mistakes
from torch.utils.data import DataLoader

import corro.torch as corro
from corro.elastic import ElasticStreams, Step

pytestmark = pytest.mark.torch22


class PlacedStreams(ElasticStreams):
    """Of one rank of a world."""

    place = (0, 1)

    def _place(self) -> tuple[int, int]:
        return self.place


def steps_of_streams(members: list[Member]) -> Iterator[Sequence[Step]]:
    """Yields each step as all members have it, who read at most two samples for it."""
    loaders = [by_two(iter(one.source)) for one in members]
    while True:
        read = [one.source._next(own) for one, own in zip(members, loaders, strict=True)]
        sums = [sum(values) for values in zip(*(mine for _, mine in read), strict=True)]
        made = [
            one.source._step(batch, sums) for one, (batch, _) in zip(members, read, strict=True)
        ]
        if None in made:
            assert made == [None] * len(made)
            return
        yield made


def by_two(samples: Iterator[int]) -> Iterator[list[int]]:
    while batch := list(islice(samples, 2)):
        yield batch


def test_each_sample_of_streams_once_over_any_history() -> None:
    for seed in range(1000):
        chance = random.Random(seed)
        cuts = [0, *sorted(chance.randint(0, 30) for _ in range(chance.randint(0, 7)))]
        parts = [range(a, b) for a, b in pairwise(cuts)]

        def make(parts: list[range] = parts) -> PlacedStreams:
            return PlacedStreams(parts, lambda part, offset: part[offset:])

        history = play(chance, make, steps_of_streams)
        assert mistakes(history, cuts[-1], DATA_EPOCHS) == [], f"seed {seed}"


def test_loaders_that_read_ahead_of_streams_or_drop_samples_are_refused() -> None:
    streams = ElasticStreams([range(4)], lambda part, offset: part[offset:])
    for options, text in (({"num_workers": 2}, "num_workers=0"), ({"drop_last": True}, "drops")):
        loader: Any = DataLoader(streams, batch_size=2, **options)  # type: ignore[arg-type]
        with pytest.raises(corro.InvalidArgumentError, match=text):
            streams.steps(loader)
    with pytest.raises(corro.InvalidArgumentError, match="another data set"):
        streams.steps(DataLoader(range(4)))  # type: ignore[arg-type]


def test_a_loader_makes_batches_and_a_new_data_epoch_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    be_no_rank(monkeypatch)
    corro.init()
    streams = ElasticStreams([range(3), range(3), range(10, 12)], lambda part, o: part[o:])
    loader: Any = DataLoader(streams, batch_size=3)
    for data_epoch in range(2):
        streams.set_epoch(data_epoch)
        seen = []
        for step in streams.steps(loader):
            seen += [(batch.tolist(), weight) for batch, weight in step]
            step.record()
            streams.set_epoch(data_epoch)
        assert seen == [([0, 1, 2], 1), ([0, 1, 2], 1), ([10, 11], 1)]
        assert streams.offsets == [3, 3, 2]
    corro.shutdown()
