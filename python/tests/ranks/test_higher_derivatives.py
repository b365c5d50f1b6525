"""Derivatives of the first three orders through corro.torch's verbs, on every rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from derivatives import Tensors, assert_same_derivatives

import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]


class Halved:
    """What travels is half of the tensor."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        return tensor / 2, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: None) -> torch.Tensor:
        del context
        return tensor * 2


@dataclass(frozen=True)
class Case:
    together: Callable[[torch.Tensor, corro.Group], torch.Tensor]
    alone: Callable[[Tensors], Tensors]
    rows: Callable[[int, int], int] = lambda _, size: 2 * size + 1  # Of an index and a size.


def total(factor: float = 1.0, average: bool = False) -> Callable[[Tensors], Tensors]:
    return lambda xs: [sum(xs) * (factor / (len(xs) if average else 1))] * len(xs)


def parts(factor: float = 1.0, average: bool = False) -> Callable[[Tensors], Tensors]:
    def alone(xs: Tensors) -> Tensors:
        return total(factor, average)(xs)[0].tensor_split(len(xs))

    return alone


def joined(xs: Tensors) -> Tensors:
    return [torch.cat(list(xs))] * len(xs)


def sizes(size: int) -> list[int]:
    return [uneven(index, size) for index in range(size)]


def uneven(index: int, _: int) -> int:
    return index + 1


def splits(index: int, size: int) -> list[int]:
    return [(index + 2 * to) % 3 for to in range(size)]


def exchanged(xs: Tensors) -> Tensors:
    table = [x.split(splits(index, len(xs))) for index, x in enumerate(xs)]
    return [torch.cat(column) for column in zip(*table, strict=True)]


def own_splits(group: corro.Group) -> list[int]:
    return splits(group.rank(), group.size())


FACTORS = {"prescale_factor": 0.5, "postscale_factor": 3.0}
CASES = {
    "allreduce sum": Case(lambda x, g: corro.allreduce(x, corro.Sum, group=g), total()),
    "allreduce average": Case(
        lambda x, g: corro.allreduce(x, name="x", group=g, **FACTORS), total(1.5, average=True)
    ),
    "allreduce compressed": Case(
        lambda x, g: corro.allreduce(x, corro.Sum, group=g, compression=Halved), total()
    ),
    "grouped_allreduce": Case(
        lambda x, g: torch.cat(
            corro.grouped_allreduce([x[:2], x[2:]], corro.Sum, group=g, **FACTORS)
        ),
        total(1.5),
    ),
    "allgather": Case(lambda x, g: corro.allgather(x, group=g), joined, uneven),
    "allgather named": Case(lambda x, g: corro.allgather(x, "x", group=g), joined, uneven),
    "allgather of known sizes": Case(
        lambda x, g: corro.allgather(x, sizes=sizes(g.size()), group=g), joined, uneven
    ),
    "grouped_allgather": Case(
        lambda x, g: sum(corro.grouped_allgather([x, 2 * x], group=g)),
        lambda xs: joined([3 * x for x in xs]),
        uneven,
    ),
    "broadcast": Case(
        lambda x, g: corro.broadcast(x, g.ranks[-1], group=g), lambda xs: [xs[-1]] * len(xs)
    ),
    "reducescatter sum": Case(lambda x, g: corro.reducescatter(x, corro.Sum, group=g), parts()),
    "reducescatter average": Case(
        lambda x, g: corro.reducescatter(x, group=g, compression=Halved, **FACTORS),
        parts(1.5, average=True),
    ),
    "grouped_reducescatter": Case(
        lambda x, g: sum(corro.grouped_reducescatter([x, 2 * x], corro.Sum, "x", group=g)),
        parts(3.0),
    ),
    "alltoall": Case(
        lambda x, g: corro.alltoall(x, own_splits(g), group=g)[0],
        exchanged,
        lambda index, size: sum(splits(index, size)),
    ),
    "alltoall named": Case(
        lambda x, g: corro.alltoall(x, name="x", group=g)[0],
        lambda xs: [
            torch.cat(column) for column in zip(*[x.chunk(len(xs)) for x in xs], strict=True)
        ],
        lambda _, size: 2 * size,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("which", ["world", "group"])
def test_derivatives_equal_one_process(case: Case, which: str) -> None:
    group = corro.world()
    if which == "group":  # Of all ranks but the first, the last one first.
        if corro.size() == 1:
            pytest.skip("there is nobody else")
        if corro.rank() == 0:
            return
        group = corro.new_group(range(corro.size() - 1, 0, -1))
    size = group.size()
    assert_same_derivatives(
        group.rank(),
        [case.rows(index, size) for index in range(size)],
        lambda x: case.together(x, group),
        case.alone,
    )


def test_a_penalty_of_the_gradient_by_backward() -> None:
    x = torch.tensor([1.0 + corro.rank(), 2.0], dtype=torch.float64, requires_grad=True)
    y = corro.allreduce(x * x, corro.Sum)
    (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    g.square().sum().backward()
    all_x = torch.tensor([[1.0 + r, 2.0] for r in range(corro.size())], requires_grad=True)
    all_y = (all_x.double() ** 2).sum(0)
    (all_g,) = torch.autograd.grad(corro.size() * all_y.square().sum(), all_x, create_graph=True)
    all_g.square().sum().backward()
    torch.testing.assert_close(x.grad, all_x.grad[corro.rank()].double())


def test_second_derivatives_of_what_has_no_gradient_are_refused() -> None:
    x = torch.ones(2, requires_grad=True)
    y = corro.allreduce(x.square(), corro.Max)
    with pytest.raises(corro.InvalidArgumentError, match="allreduce: only Sum and Average"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_a_first_derivative_has_no_graph() -> None:
    x = torch.ones(2, requires_grad=True)
    (g,) = torch.autograd.grad(corro.allreduce(x.square()).sum(), x)
    assert not g.requires_grad
