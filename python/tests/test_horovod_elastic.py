"""Horovod's elastic states and its loop, in a world of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from elastic_member import Member, be_no_rank
from torch import nn

import corro
import horovod.torch as hvd
from corro import _context
from horovod.common.elastic import HostUpdateResult, ObjectState
from horovod.common.exceptions import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    raised_as_horovods,
)
from horovod.torch.elastic import sampler as samplers
from horovod.torch.elastic import state as states


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    be_no_rank(monkeypatch)
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Reasons of changes of the epoch, which are none."""
    made: list[str] = []
    monkeypatch.setattr(_context, "_membership", Member())
    monkeypatch.setattr(_context, "move_on", lambda _, end, **__: made.append(end.why))
    return made


def model_of(value: float) -> nn.Module:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        for param in model.parameters():
            param.fill_(value)
    return model


def value_of(model: Any) -> float:
    return float(model.weight[0, 0].detach())


def torch_state(**attributes: Any) -> Any:
    model = model_of(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    return hvd.elastic.TorchState(model=model, optimizer=optimizer, **attributes)


def trained(state: Any) -> None:
    state.optimizer.zero_grad()
    state.model(torch.ones(1, 2)).sum().backward()
    state.optimizer.step()


def test_restore_goes_back_to_the_last_commit() -> None:
    state = torch_state(epoch=0)
    model, optimizer = state.model, state.optimizer
    trained(state)
    state.epoch = 1
    state.commit()
    after_one = value_of(model)
    for _ in range(2):
        trained(state)
        trained(state)
        state.epoch = 2
        state.restore()
        assert (value_of(model), state.epoch) == (after_one, 1)
        assert state.model is model
        assert state.optimizer is optimizer
    momentum = optimizer.state[model.weight]["momentum_buffer"]
    assert momentum.tolist() == [[1.0, 1.0]]


def test_an_assigned_value_is_handled_from_then_on() -> None:
    state = torch_state()
    state.model = other = model_of(5)
    with torch.no_grad():
        other.weight.zero_()  # type: ignore[operator]
    state.restore()
    assert value_of(other) == 5
    assert state.model is other


def test_attributes_are_plain_objects_unless_they_have_a_handler() -> None:
    state = torch_state(seen=[1])
    state.seen.append(2)
    state.restore()
    assert state.seen == [1]


def test_the_registry_says_who_handles_what() -> None:
    class Handler(states.StateHandler):
        def save(self) -> None:
            self.saved = dict(self.value)

        def restore(self) -> None:
            self.value.update(self.saved)

        def sync(self) -> None:
            self.save()

    before = states.get_handler_registry()
    states.set_handler_registry([*before, (dict, Handler)])
    try:
        options = {"lr": 1}
        state: Any = hvd.elastic.TorchState(options=options)
        state.commit()
        options["lr"] = 2
        state.restore()
        assert state.options is options
        assert options["lr"] == 1
    finally:
        states.set_handler_registry(before)


def test_a_sampler_begins_each_data_epoch_anew() -> None:
    sampler = hvd.elastic.ElasticSampler(range(8), shuffle=False)
    state: Any = hvd.elastic.TorchState(sampler=sampler)
    sampler.record_batch(0, 2)
    state.commit()
    sampler.record_batch(1, 2)
    assert len(sampler) == 8  # It divides the rest when ranks have come or gone, or is asked to.
    state.restore()
    assert list(sampler) == [2, 3, 4, 5, 6, 7]
    sampler.set_epoch(0)
    assert len(sampler) == 8


def test_ranks_have_as_many_samples_where_there_is_a_remainder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = [0, 3]
    monkeypatch.setattr(samplers, "rank", lambda: place[0])
    monkeypatch.setattr(samplers, "size", lambda: place[1])

    def of_ranks(count: int, processed: int = 0) -> list[list[int]]:
        taken = []
        for number in range(place[1]):
            place[0] = number
            sampler = hvd.elastic.ElasticSampler(range(count), seed=3)
            sampler.load_state_dict({"epoch": 0, "processed_num": processed})
            taken.append(list(sampler))
            assert len(sampler) == len(taken[-1])
        return taken

    assert [len(own) for own in of_ranks(10)] == [4, 4, 4]
    assert {index for own in of_ranks(10) for index in own} == set(range(10))
    first = {index for own in of_ranks(12) for index in own[:2]}
    place[1] = 2
    rest = {index for own in of_ranks(12, 6) for index in own}
    assert first | rest == set(range(12))
    assert len(first) == len(rest) == 6
    place[1] = 4
    assert of_ranks(1) == [[0]] * 4


def test_hosts_that_come_or_go_interrupt_the_next_commit() -> None:
    state: Any = ObjectState(hvd.broadcast_object, hvd.rank, step=0)
    state.commit()
    state.on_hosts_updated(1, HostUpdateResult.removed)
    state.step = 1
    with pytest.raises(HostsUpdatedInterrupt) as info:
        state.commit()
    assert info.value.skip_sync
    state.on_hosts_updated(2, HostUpdateResult.removed)
    state.on_hosts_updated(3, HostUpdateResult.added)
    with pytest.raises(HostsUpdatedInterrupt) as info:
        state.commit()
    assert not info.value.skip_sync
    state.on_reset()
    state.commit()


class Recorded(ObjectState):
    """A state that says what was done to it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        super().__init__(hvd.broadcast_object, hvd.rank, step=0)
        self.register_reset_callbacks([lambda: self.calls.append("reset")])

    def sync(self) -> None:
        self.calls.append("sync")
        super().sync()

    def restore(self) -> None:
        self.calls.append("restore")
        super().restore()


def run_with(error: Exception) -> list[str]:
    state = Recorded()

    @hvd.elastic.run
    def train(state: Any) -> str:
        state.calls.append("train")
        if state.calls.count("train") == 1:
            raise error
        return "done"

    assert train(state) == "done"
    return state.calls


def as_horovods(error: corro.CorroError) -> HorovodInternalError:
    with pytest.raises(HorovodInternalError) as info, raised_as_horovods():
        raise error
    return info.value


def test_a_rank_that_is_lost_takes_the_state_back(moves: list[str]) -> None:
    error = as_horovods(corro.RankLostError("rank 1 was lost", rank=1))
    assert run_with(error) == ["sync", "train", "restore", "reset", "sync", "train"]
    assert moves == ["rank 1 was lost"]


def test_an_interrupt_takes_nothing_back(moves: list[str]) -> None:
    assert run_with(HostsUpdatedInterrupt()) == ["sync", "train", "reset", "sync", "train"]
    assert run_with(HostsUpdatedInterrupt(skip_sync=True)) == ["sync", "train", "reset", "train"]
    assert len(moves) == 2


@pytest.mark.parametrize(
    "error",
    [
        HorovodInternalError("of the user's"),
        as_horovods(corro.MismatchError("ranks differ")),
        as_horovods(corro.TimeoutError("rank 1 was late")),
        KeyError("of the user's"),
    ],
    ids=str,
)
def test_other_errors_are_raised(moves: list[str], error: Exception) -> None:
    with pytest.raises(type(error)):
        run_with(error)
    assert not moves


def test_outside_of_an_elastic_job_errors_are_raised() -> None:
    for error in (
        HostsUpdatedInterrupt(),
        as_horovods(corro.RankLostError("rank 1 was lost", rank=1)),
    ):
        with pytest.raises(type(error)):
            run_with(error)
