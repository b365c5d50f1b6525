"""Derivatives of the first three orders through Horovod's verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

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


@pytest.fixture(params=["world", "set"])
def members(request: pytest.FixtureRequest) -> Iterator[hvd.ProcessSet]:
    """The world, or all of it but the first rank, which has nothing to do meanwhile."""
    if request.param == "world":
        yield hvd.global_process_set
        return
    if hvd.size() == 1:
        pytest.skip("there is nobody else")
    part = hvd.add_process_set(range(1, hvd.size()))
    yield part
    hvd.remove_process_set(part)


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
