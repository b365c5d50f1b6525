"""Samples of elastic training: how steps divide them, in any history; and the learning rate."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from elastic_member import be_no_rank
from elastic_play import DATA_EPOCHS, flat, play, steps_of_samplers
from histories import Applied, Event, Taken, mistakes
from torch.utils.data import DataLoader

import corro.torch as corro
from corro.elastic._sampler import batches_of_rank

pytestmark = pytest.mark.torch22

ElasticSampler = corro.elastic.ElasticSampler

# -- the division ---------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_a_step_is_divided_among_ranks_and_batches(batch_size: int) -> None:
    for ranks in range(1, 8):
        for samples in range(1, 40):
            taken = range(100, 100 + samples)
            of_ranks = [batches_of_rank(taken, rank, ranks, batch_size) for rank in range(ranks)]
            assert len({len(parts) for parts in of_ranks}) == 1
            own = [position for parts in of_ranks for part, weight in parts if weight > 0
                   for position in part]  # fmt: skip
            assert own == list(taken)
            for parts in of_ranks:
                for part, weight in parts:
                    assert 1 <= len(part) <= batch_size
                    assert weight in (0, len(part) * ranks / samples)
                    assert weight > 0 or part == range(100, 101)
            assert sum(w for parts in of_ranks for _, w in parts) == pytest.approx(ranks)


class Placed(ElasticSampler):
    """Of one rank of a world."""

    place = (0, 1)

    def _place(self) -> tuple[int, int]:
        return self.place


def placed(rank: int, ranks: int, count: int, batch_size: int, **options: Any) -> Placed:
    sampler = Placed(range(count), batch_size, **options)
    sampler.place = (rank, ranks)
    return sampler


def taken_by(sampler: ElasticSampler, steps: int) -> list[list[int]]:
    """Takes so many steps; returns the indices that count."""
    taken = []
    for _, step in zip(range(steps), sampler.steps(), strict=False):
        taken.append([index for batch, weight in step if weight > 0 for index in batch])
        step.record()
    return taken


def test_the_last_step_has_what_is_left() -> None:
    samplers = [placed(rank, 4, 14, 3, shuffle=False) for rank in range(4)]
    assert [taken_by(one, 9) for one in samplers] == [
        [[0, 1, 2], []], [[3, 4, 5], [12]], [[6, 7, 8], []], [[9, 10, 11], [13]]
    ]  # fmt: skip
    assert all(one.processed_num == 14 and len(one) == 0 for one in samplers)


def test_a_global_batch_is_kept_in_smaller_worlds() -> None:
    for ranks, passes in ((6, 1), (4, 1), (3, 2), (2, 2), (1, 4)):
        samplers = [placed(rank, ranks, 30, 3, global_batch=12) for rank in range(ranks)]
        steps = [list(zip(*(taken_by(one, 1) for one in samplers), strict=True)) for _ in range(3)]
        assert [sum(map(len, parts)) for ((*parts,),) in steps] == [12, 12, 6]
        assert samplers[0].passes == passes


def test_the_number_of_batches_is_known() -> None:
    for count in range(30):
        for ranks in range(1, 5):
            for options in ({}, {"global_batch": 7}):
                one = placed(ranks - 1, ranks, count, 2, **options)
                assert len(list(one)) == len(one)
                taken_by(one, 1)
                assert len(list(one)) == len(one)


def test_a_cursor_counts_steps_and_not_what_was_fetched() -> None:
    sampler = placed(0, 1, 64, 4)
    loader = DataLoader(range(64), batch_sampler=sampler, num_workers=2, prefetch_factor=4)  # type: ignore[arg-type]
    steps = sampler.steps(loader)
    first: Any = [batch.tolist() for batch, _ in next(steps)]
    assert sampler.processed_num == 0
    again = next(sampler.steps(loader))
    assert [batch.tolist() for batch, _ in again] == first
    again.record()
    assert sampler.processed_num == 4
    rest = [batch.tolist() for step in taking(sampler.steps(loader)) for batch, _ in step]
    assert sorted(flat(first + rest)) == list(range(64))


def taking(steps: Iterator[corro.elastic.Step]) -> Iterator[list[Any]]:
    for step in steps:
        yield list(step)
        step.record()


def test_a_data_epoch_that_has_begun_goes_on_and_another_one_begins_anew() -> None:
    sampler = placed(0, 1, 12, 4)
    first = flat(sampler)
    taken_by(sampler, 1)
    sampler.set_epoch(0)
    assert flat(sampler) == first[4:]
    sampler.set_epoch(1)
    assert sampler.processed_num == 0
    assert sorted(flat(sampler)) == sorted(first)
    assert flat(sampler) != first


def test_a_state_restores_its_sampler(alone: None) -> None:  # noqa: ARG001
    sampler = ElasticSampler(range(8), 2, shuffle=False)
    state: Any = corro.elastic.State(sampler=sampler)
    taken_by(sampler, 1)
    state.commit()
    taken_by(sampler, 1)
    state.restore()
    assert state.sampler is sampler
    assert list(sampler) == [[2, 3], [4, 5], [6, 7]]


def test_the_weighted_gradient_is_that_of_all_samples() -> None:
    x = torch.randn(11, 3, dtype=torch.float64)
    expected = torch.func.grad(lambda w: (x @ w).square().mean())(torch.ones(3).double())
    for ranks in (1, 2, 3, 16):
        total = torch.zeros(3, dtype=torch.float64)
        for rank in range(ranks):
            w = torch.ones(3, dtype=torch.float64, requires_grad=True)
            for batch, weight in next(placed(rank, ranks, 11, 2, global_batch=11).steps()):
                ((x[batch] @ w).square().mean() * weight).backward()
            assert w.grad is not None
            total += w.grad / ranks
        assert torch.allclose(total, expected)


# -- mistakes of users ----------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    be_no_rank(monkeypatch)
    corro.init()
    yield
    corro.shutdown()


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"batch_size": 1, "global_batch": 2.5}])
def test_sizes_are_positive_integers(options: Any) -> None:
    with pytest.raises(corro.InvalidArgumentError, match="has to be a positive integer"):
        ElasticSampler(range(3), **options)


def test_a_step_that_is_not_recorded_is_found() -> None:
    steps = placed(0, 1, 4, 1).steps()
    next(steps)
    with pytest.raises(corro.FailedPreconditionError, match="was not recorded"):
        next(steps)


def test_a_step_is_recorded_once_and_as_a_whole() -> None:
    step = next(placed(0, 1, 4, 1).steps())
    with pytest.raises(corro.FailedPreconditionError, match="not all batches"):
        step.record()
    step = next(placed(0, 1, 4, 1).steps())
    list(step)
    step.record()
    with pytest.raises(corro.FailedPreconditionError, match="already"):
        step.record()


def test_a_loader_with_another_sampler_is_refused() -> None:
    sampler = placed(0, 1, 4, 1)
    with pytest.raises(corro.InvalidArgumentError, match="batch_sampler=sampler"):
        sampler.steps(DataLoader(range(4), batch_size=1))  # type: ignore[arg-type]
    with pytest.raises(corro.InvalidArgumentError, match="has ended before"):
        list(next(sampler.steps([])))


# -- the learning rate ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "rates"),
    [("linear", [0.2, 0.6]), ("sqrt", [0.4 * 0.5**0.5, 0.4 * 1.5**0.5]),
     (lambda old, new: 10.0 * old + new, [0.4 * 42, 0.4 * 42 * 26])],
)  # fmt: skip
def test_the_learning_rate_follows_the_number_of_ranks(
    monkeypatch: pytest.MonkeyPatch, by: Any, rates: list[float]
) -> None:
    world = [4]
    monkeypatch.setattr("corro._context.size", lambda: world[-1])
    optimizer = torch.optim.SGD([torch.ones(1)], lr=0.4)
    scale = corro.elastic.scale_learning_rate(optimizer, by)
    scale()
    assert optimizer.param_groups[0]["lr"] == 0.4
    for ranks, rate in zip((2, 6), rates, strict=True):
        world.append(ranks)
        scale()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)


def test_a_rule_that_is_none() -> None:
    with pytest.raises(corro.InvalidArgumentError, match="'cubic'"):
        corro.elastic.scale_learning_rate(None, "cubic")


# -- any history of ranks -------------------------------------------------------------------------


def options_of(random: random.Random) -> dict[str, Any]:
    return {
        "batch_size": random.randint(1, 4),
        "global_batch": random.choice((None, None, random.randint(1, 15))),
        "shuffle": random.random() < 0.3,
    }


def play_sampler(random: random.Random, count: int, **options: Any) -> list[Event]:
    return play(random, lambda: placed(0, 1, count, seed=5, **options), steps_of_samplers)


@pytest.mark.parametrize("part", range(4))
def test_each_sample_once_over_any_history(part: int) -> None:
    for seed in range(part, 3000, 4):
        chance = random.Random(seed)
        count = chance.randint(0, 40)
        history = play_sampler(chance, count, **options_of(chance))
        assert mistakes(history, count, DATA_EPOCHS) == [], f"seed {seed}"


# -- the checker ----------------------------------------------------------------------------------

COUNT = 23


def counted(history: list[Event]) -> list[Taken]:
    """Returns what members took in the steps that count, and had samples for."""
    last: dict[int, int] = {}
    for event in history:
        last[event.step] = max(last.get(event.step, 0), event.epoch)
    return [event for event in history if isinstance(event, Taken) and event.samples
            and last[event.step] == event.epoch]  # fmt: skip


def put(history: list[Event], old: Taken, **changes: Any) -> list[Event]:
    return [replace(event, **changes) if event is old else event for event in history]


def is_of(event: Event, one: Taken) -> bool:
    return (event.step, event.epoch) == (one.step, one.epoch)


def done_again(history: list[Event], one: Taken) -> list[Event]:
    """The step's members do it once more, in a later epoch."""
    again = [replace(event, epoch=10_000) for event in history if is_of(event, one)]
    return [*history, *again]


Mistake = Callable[[list[Event], Taken], list[Event]]
MISTAKES: dict[str, Mistake] = {
    "came 0 times": lambda h, one: put(h, one, samples=one.samples[1:]),
    "came 2 times": lambda h, one: put(h, one, samples=(*one.samples, one.samples[0])),
    "no sample": lambda h, one: put(h, one, samples=(*one.samples, COUNT)),
    "differ in data epoch": lambda h, one: put(h, one, data_epoch=1 - one.data_epoch),
    "weighs": lambda h, one: put(h, one, weight=one.weight + 0.5),
    "took part": lambda h, one: [event for event in h if event is not one],
    "steps are missing": lambda h, one: [event for event in h if event.step != one.step],
    "was not applied": lambda h, one: [
        event for event in h if not (isinstance(event, Applied) and is_of(event, one))
    ],
    "done again": done_again,
    "twice in epoch": lambda h, one: [*h, *(
        event for event in h if isinstance(event, Applied) and is_of(event, one)
    )],
    "took no part": lambda h, one: [*h, Applied(member=-1, epoch=one.epoch, step=one.step)],
}  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES)
def test_the_checker_finds(text: str) -> None:
    for seed in range(100):
        chance = random.Random(seed)
        history = play_sampler(chance, COUNT, batch_size=2)
        own = counted(history)
        if text == "steps are missing":  # A history that ends early lacks samples instead.
            own = [one for one in own if one.step < max(event.step for event in history)]
        if text in ("differ in data epoch", "took part"):  # A rank that is alone cannot.
            own = [one for one in own if one.ranks > 1]
        if own:
            found = mistakes(MISTAKES[text](history, chance.choice(own)), COUNT, DATA_EPOCHS)
            assert any(text in line for line in found), f"seed {seed}: {found}"


def test_the_checker_finds_data_epochs_out_of_order() -> None:
    swapped = [
        replace(event, data_epoch=1 - event.data_epoch) if isinstance(event, Taken) else event
        for event in play_sampler(random.Random(0), COUNT, batch_size=2)
    ]
    assert mistakes(swapped, COUNT, 2) == ["a data epoch began before another one was over"]
