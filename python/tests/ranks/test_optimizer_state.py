"""Optimizers' states and other objects between ranks: all of them travels, or is refused."""

from __future__ import annotations

import enum
import math
import threading
from collections import namedtuple
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from training import adam, network

import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]

Pair = namedtuple("Pair", "first second")  # As users write it.


class Mode(enum.Enum):
    FAST = 1


def last() -> int:
    return corro.size() - 1


def trained_adam(steps: int = 2) -> torch.optim.Optimizer:
    torch.manual_seed(corro.rank())
    model = nn.Linear(3, 2)
    optimizer = adam(model)
    for _ in range(steps):
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()
    return optimizer


VALUES = {
    "float64": numpy.float64(0.25),
    "float32": numpy.float32(0.25),
    "sqrt": 0.1 * numpy.sqrt(2),
    "int64": numpy.int64(3),
    "bool_": numpy.bool_(True),
    "array": numpy.arange(3.0),
    "0-d array": numpy.array(1.5),
    "0-d tensor": torch.tensor(0.5),
    "bf16": torch.ones(2, dtype=torch.bfloat16),
    "enum": Mode.FAST,
    "None": None,
    "tuple": (0.9, numpy.float64(0.999), (1, None)),
    "namedtuple": Pair(1, torch.ones(2)),
    "dict": {"a": [1, {"b": torch.arange(3)}]},
    "function": math.sqrt,
    "class": Pair,
    "text": "text",
    "complex": 1j,
    "nan": float("inf"),
}


def described(value: Any) -> Any:
    """Returns what can be compared by ==, types included."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, value.tolist())
    if isinstance(value, numpy.ndarray):
        return ("array", value.dtype, value.tolist())
    if isinstance(value, dict):
        return {key: described(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return (type(value), [described(one) for one in value])
    return (type(value), value)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_travels_as_an_option_as_a_default_and_in_the_state(name: str) -> None:
    optimizer = trained_adam(1)
    param = optimizer.param_groups[0]["params"][1]
    if corro.rank() == last():
        optimizer.param_groups[0]["note"] = VALUES[name]
        optimizer.defaults["note"] = VALUES[name]
        optimizer.state[param]["note"] = VALUES[name]
    corro.broadcast_optimizer_state(optimizer, root_rank=last())
    for place in (optimizer.param_groups[0], optimizer.defaults, optimizer.state[param]):
        assert described(place["note"]) == described(VALUES[name])


def test_a_numpy_number_as_rate_stays_one_and_trains() -> None:
    model = network()
    rate = (corro.rank() + 1) * numpy.float64(0.1)
    optimizer = corro.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=rate))
    corro.broadcast_optimizer_state(optimizer)
    assert described(optimizer.param_groups[0]["lr"]) == described(numpy.float64(0.1))
    model(torch.ones(1, 6)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "value", [lambda x: x, threading.Lock(), {"deep": [lambda: 1]}], ids=["lambda", "lock", "deep"]
)
@pytest.mark.parametrize("place", ["option", "default", "state"])
def test_what_cannot_travel_is_named_on_every_rank(value: Any, place: str) -> None:
    if corro.size() == 1:
        return
    optimizer = trained_adam(1)
    if corro.rank() == last():
        where, what = {
            "option": (optimizer.param_groups[0], "option 'note' of parameter group 0"),
            "default": (optimizer.defaults, "default 'note'"),
            "state": (
                optimizer.state[optimizer.param_groups[0]["params"][1]],
                "state 'note' of parameter 1",
            ),
        }[place]
        where["note"] = value
    before = optimizer.param_groups[0]["lr"]
    with pytest.raises(corro.InvalidArgumentError) as caught:
        corro.broadcast_optimizer_state(optimizer, root_rank=last())
    assert f"broadcast_optimizer_state: rank {last()} cannot send " in str(caught.value)
    if corro.rank() == last():
        assert f"{what}, {value!r}: " in str(caught.value)
    assert corro.allgather_object(str(caught.value)) == [str(caught.value)] * corro.size()
    assert optimizer.param_groups[0]["lr"] == before


def explodes_on_the_last_rank() -> int:
    if corro.rank() == last():
        raise OSError("no such thing here")
    return 1


class Explosive:
    def __reduce__(self) -> Any:
        return (explodes_on_the_last_rank, ())


@pytest.mark.parametrize("reason", ["unpickling", "groups", "sizes"])
def test_what_one_rank_cannot_load_is_an_error_on_every_rank(reason: str) -> None:
    if corro.size() == 1:
        return
    optimizer = trained_adam(1)
    if reason == "unpickling":
        optimizer.param_groups[0]["note"] = Explosive()
    elif corro.rank() == last():
        extra = nn.Parameter(torch.zeros(1))
        if reason == "groups":
            optimizer.add_param_group({"params": [extra]})
        else:
            optimizer.param_groups[0]["params"].append(extra)
    told = {
        "unpickling": "OSError: no such thing here",
        "groups": r"InvalidArgumentError: parameter groups of \[2\] parameters, \[2, 1\] here",
        "sizes": r"InvalidArgumentError: parameter groups of \[2\] parameters, \[3\] here",
    }[reason]
    with pytest.raises(
        corro.InvalidArgumentError, match=f"rank {last()} cannot load what rank 0 has: {told}"
    ):
        corro.broadcast_optimizer_state(optimizer)


def test_it_changes_the_optimizer_in_place() -> None:
    optimizer = trained_adam()
    optimizer.param_groups[0]["lr"] = torch.tensor(0.1 * (1 + corro.rank()))
    groups, group = optimizer.param_groups, optimizer.param_groups[0]
    rate, params = group["lr"], group["params"]
    state = {param: (one, dict(one)) for param, one in optimizer.state.items()}
    corro.broadcast_optimizer_state(optimizer)
    assert optimizer.param_groups is groups
    assert groups == [group]
    assert group["params"] is params
    assert group["lr"] is rate
    assert rate.item() == pytest.approx(0.1)
    for param, (one, values) in state.items():
        assert optimizer.state[param] is one
        assert one.keys() == values.keys()
        assert all(one[key] is value for key, value in values.items())
        assert torch.equal(corro.broadcast(one["exp_avg"]), one["exp_avg"])


def test_options_that_share_a_tensor_here_and_not_on_the_root() -> None:
    rates = [torch.tensor(0.5), torch.tensor(0.25)]
    if corro.rank() > 0:
        rates = [torch.tensor(1.0)] * 2
    params = [{"params": [nn.Parameter(torch.ones(1))], "lr": rate} for rate in rates]
    optimizer = torch.optim.SGD(params, foreach=False)
    corro.broadcast_optimizer_state(optimizer)
    assert [group["lr"].item() for group in optimizer.param_groups] == [0.5, 0.25]


def test_state_keeps_the_dtype_that_it_has_on_the_root() -> None:
    """torch's load_state_dict() would make it that of the parameter."""
    param = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([param], lr=0.1)
    optimizer.state[param]["master"] = torch.full((2,), 1.001 + corro.rank())
    corro.broadcast_optimizer_state(optimizer)
    assert torch.equal(optimizer.state[param]["master"], torch.full((2,), 1.001))


def test_defaults_are_the_roots_so_that_groups_added_later_have_its_rate() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1 * (corro.rank() + 1))
    defaults = optimizer.defaults
    corro.broadcast_optimizer_state(optimizer)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    assert optimizer.defaults is defaults
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1]


class KeepsHalves(torch.optim.SGD):
    """Its state_dict() is in another form than its state."""

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        buffers = {
            key: {"momentum_buffer": one["momentum_buffer"].half()}
            for key, one in state["state"].items()
        }
        return {**state, "state": buffers}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.loads = getattr(self, "loads", 0) + 1


@pytest.mark.parametrize("by", ["class", "hook"])
def test_an_optimizer_with_its_own_loading_loads_by_itself(by: str) -> None:
    param = nn.Parameter(torch.ones(2))
    optimizer = (KeepsHalves if by == "class" else torch.optim.SGD)([param], lr=0.1, momentum=0.9)
    if by == "hook":
        optimizer.register_load_state_dict_post_hook(
            lambda one: setattr(one, "loads", getattr(one, "loads", 0) + 1)
        )
    param.grad = torch.full((2,), corro.rank() + 1.0)
    optimizer.step()
    group, state = optimizer.param_groups[0], optimizer.state
    corro.broadcast_optimizer_state(optimizer)
    assert getattr(optimizer, "loads", 0) == (corro.rank() > 0)
    assert optimizer.param_groups[0] is group
    assert optimizer.state is state
    assert state[param]["momentum_buffer"].tolist() == [1.0, 1.0]
    assert state[param]["momentum_buffer"].dtype == torch.float32


# -- objects --------------------------------------------------------------------------------------


def test_an_object_that_cannot_be_pickled_is_an_error_on_every_rank() -> None:
    root = last()
    obj = threading.Lock() if corro.rank() == root else 1
    for verb in (
        lambda: corro.broadcast_object(obj, root),
        lambda: corro.allgather_object(obj),
        lambda: corro.broadcast_object(obj, root, "named"),
        lambda: corro.allgather_object(obj, "named"),
    ):
        with pytest.raises(corro.InvalidArgumentError, match=f": rank {root} cannot send it: Type"):
            verb()
    assert corro.allgather_object("goes on") == ["goes on"] * corro.size()
