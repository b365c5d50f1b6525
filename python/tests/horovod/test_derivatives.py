"""Derivatives of the first three orders through Horovod's verbs, by every spelling of a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from derivatives import Tensors, assert_same_derivatives

import horovod.torch as hvd

pytestmark = pytest.mark.usefixtures("job")


def scaled(y: torch.Tensor, scale: float) -> torch.Tensor:
    """Returns y, whose gradient is multiplied by `scale`."""
    return y * scale + (y - y * scale).detach()


@dataclass(frozen=True)
class Case:
    together: Callable[[torch.Tensor, hvd.ProcessSet], torch.Tensor]
    alone: Callable[[Tensors], Tensors]
    rows: Callable[[int, int], int] = lambda _, size: 2 * size + 1  # Of an index and a size.


def joined(xs: Tensors) -> Tensors:
    """Horovod averages what comes back from a gather."""
    return [scaled(torch.cat(list(xs)), 1 / len(xs))] * len(xs)


def exchanged(xs: Tensors) -> Tensors:
    table = [x.chunk(len(xs)) for x in xs]
    return [torch.cat(column) for column in zip(*table, strict=True)]


CASES = {
    "allreduce": Case(
        lambda x, members: hvd.allreduce(x, process_set=members),
        lambda xs: [sum(xs) / len(xs)] * len(xs),
    ),
    "grouped_allreduce": Case(
        lambda x, members: torch.cat(
            hvd.grouped_allreduce(
                [x[:1], x[1:]], op=hvd.Sum, prescale_factor=3.0, process_set=members
            )
        ),
        lambda xs: [3 * sum(xs)] * len(xs),
    ),
    "allgather": Case(
        lambda x, members: hvd.allgather(x, process_set=members),
        joined,
        lambda index, _: index + 1,
    ),
    "grouped_allgather": Case(
        lambda x, members: sum(hvd.grouped_allgather([x, 2 * x], process_set=members)),
        lambda xs: joined([3 * x for x in xs]),
    ),
    "broadcast": Case(
        lambda x, members: hvd.broadcast(x, members.ranks[-1], process_set=members),
        lambda xs: [scaled(xs[-1], 1 / len(xs))] * len(xs),
    ),
    "alltoall": Case(
        lambda x, members: hvd.alltoall(x, process_set=members),
        exchanged,
        lambda _, size: 2 * size,
    ),
    "reducescatter": Case(
        lambda x, members: hvd.reducescatter(x, op=hvd.Sum, process_set=members),
        lambda xs: scaled(sum(xs), len(xs)).tensor_split(len(xs)),
    ),
    "grouped_reducescatter": Case(
        lambda x, members: sum(hvd.grouped_reducescatter([x, 2 * x], process_set=members)),
        lambda xs: scaled(3 * sum(xs) / len(xs), len(xs)).tensor_split(len(xs)),
    ),
}


def test_derivatives_equal_one_process(members: hvd.ProcessSet) -> None:
    if not members.included():
        return
    size = members.size()
    for case in CASES.values():
        assert_same_derivatives(
            members.rank(),
            [case.rows(index, size) for index in range(size)],
            lambda x, case=case: case.together(x, members),
            case.alone,
        )


def verbs() -> dict[str, Callable[..., Any]]:
    """Returns the public functions that take tensors first and return tensors."""
    found = {}
    for name in hvd.mpi_ops.__all__:
        function = getattr(hvd, name)
        if not inspect.isfunction(function) or name.endswith(("_", "_async")):
            continue
        if next(iter(inspect.signature(function).parameters), "") in ("tensor", "tensors"):
            found[name] = function
    return found


def test_no_spelling_loses_the_graph() -> None:
    assert set(verbs()) == set(CASES)
    for verb in verbs().values():
        first, *others = inspect.signature(verb).parameters.values()
        given = {one.name: one.default for one in others if one.default is not one.empty}
        given |= {"root_rank": 0} if verb is hvd.broadcast else {}
        x = torch.ones(2 * hvd.size(), 2, requires_grad=True)
        tensors = [x] if first.name == "tensors" else x
        for result in (
            verb(tensors, *[given[one.name] for one in others]),
            verb(tensors, **given),
            verb(**{first.name: tensors}, **given),
        ):
            x.grad = None
            torch.stack(result if isinstance(result, list) else [result]).sum().backward()
            assert x.grad is not None
