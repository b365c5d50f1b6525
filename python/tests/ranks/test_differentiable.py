"""Gradients through corro.torch's verbs, on every rank, against their definition.

Each rank's loss is the sum of its result times weights of its own, and what is differentiated is
the sum of all losses.
"""

from __future__ import annotations

import pytest
import torch

import corro.torch as corro
from corro.torch.differentiable import scaled_allgather, scaled_broadcast, scaled_reducescatter

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]


def weights(rank: int, *shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).view(shape) + 10 * rank + 1


def all_weights(*shape: int) -> torch.Tensor:
    return torch.stack([weights(rank, *shape) for rank in range(corro.size())]).sum(0)


def leaf(*shape: int) -> torch.Tensor:
    return weights(corro.rank(), *shape).requires_grad_()


def run_backward(y: torch.Tensor) -> None:
    (y * weights(corro.rank(), *y.shape)).sum().backward()


@pytest.mark.parametrize("name", [None, "x"])
@pytest.mark.parametrize(("op", "share"), [(corro.Sum, False), (corro.Average, True)])
def test_allreduce(op: corro.ReduceOp, share: bool, name: str | None) -> None:
    x = leaf(3, 2)
    y = corro.allreduce(x, op, name, prescale_factor=0.5, postscale_factor=8.0)
    assert torch.equal(
        y.detach(),
        corro.allreduce(x.detach(), op, name, prescale_factor=0.5, postscale_factor=8.0),
    )
    run_backward(y)
    expected = all_weights(3, 2) * 4 / (corro.size() if share else 1)
    assert torch.allclose(x.grad, expected)


def test_grouped_allreduce() -> None:
    xs = [leaf(2), leaf(3, 3)]
    for y in corro.grouped_allreduce(xs, corro.Sum):
        run_backward(y)
    for x in xs:
        assert torch.allclose(x.grad, all_weights(*x.shape))


@pytest.mark.parametrize("op", [corro.Min, corro.Max, corro.Product])
def test_what_has_no_gradient_says_so(op: corro.ReduceOp) -> None:
    y = corro.allreduce(leaf(2), op)
    with pytest.raises(corro.InvalidArgumentError, match=f"only Sum and Average.*{op.name}"):
        run_backward(y)


@pytest.mark.parametrize("name", [None, "x"])
@pytest.mark.parametrize("known", [False, True])
def test_allgather_of_different_rows(known: bool, name: str | None) -> None:
    sizes = [rank + 1 for rank in range(corro.size())]
    x = leaf(sizes[corro.rank()], 2)
    y = corro.allgather(x, name, sizes=sizes if known else None)
    run_backward(y)
    first = sum(sizes[: corro.rank()])
    assert torch.allclose(x.grad, all_weights(sum(sizes), 2)[first : first + sizes[corro.rank()]])


@pytest.mark.parametrize("name", [None, "x"])
def test_one_rank_alone_may_want_gradients_of_rows(name: str | None) -> None:
    x = weights(corro.rank(), 2, 3).requires_grad_(corro.rank() == 0)
    expected = torch.cat([weights(rank, 2, 3) for rank in range(corro.size())])
    assert torch.equal(corro.allgather(x, name).detach(), expected)
    assert torch.equal(corro.grouped_allgather([x, x], name)[1].detach(), expected)


def test_broadcast_gives_the_root_all_gradients() -> None:
    root = corro.size() - 1
    x = leaf(3)
    run_backward(corro.broadcast(x, root))
    assert torch.allclose(
        x.grad, all_weights(3) if corro.rank() == root else torch.zeros(3).double()
    )


@pytest.mark.parametrize(("op", "share"), [(corro.Sum, False), (corro.Average, True)])
def test_reducescatter_of_uneven_rows(op: corro.ReduceOp, share: bool) -> None:
    rows = 2 * corro.size() + 1
    x = leaf(rows, 2)
    run_backward(corro.reducescatter(x, op, prescale_factor=0.5))
    sizes = [rows // corro.size() + (r < rows % corro.size()) for r in range(corro.size())]
    expected = torch.cat([weights(rank, size, 2) for rank, size in enumerate(sizes)]) * 0.5
    assert torch.allclose(x.grad, expected / (corro.size() if share else 1))


@pytest.mark.parametrize("name", [None, "x"])
def test_alltoall_sends_gradients_back(name: str | None) -> None:
    size = corro.size()
    x = leaf(size * 2, 2)
    y, received = corro.alltoall(x, [2] * size, name)
    assert received == [2] * size
    run_backward(y)
    mine = corro.rank() * 2
    expected = torch.cat([weights(rank, size * 2, 2)[mine : mine + 2] for rank in range(size)])
    assert torch.allclose(x.grad, expected)


def test_gradients_can_be_scaled() -> None:
    x, y, z = leaf(2), leaf(2), leaf(corro.size())
    run_backward(scaled_allgather([x], [None], scale=0.5)[0])
    run_backward(scaled_broadcast(y, 0, scale=0.5))
    run_backward(scaled_reducescatter([z], corro.Sum, [None], scale=0.5)[0])
    mine = corro.rank() * 2
    assert torch.allclose(x.grad, all_weights(2 * corro.size())[mine : mine + 2] / 2)
    assert torch.allclose(
        y.grad, all_weights(2) / 2 if corro.rank() == 0 else torch.zeros(2).double()
    )
    assert torch.allclose(z.grad, torch.cat([weights(r, 1) for r in range(corro.size())]) / 2)


def test_without_a_gradient_nothing_is_recorded() -> None:
    x = leaf(2)
    with torch.no_grad():
        assert corro.allreduce(x).grad_fn is None
    assert corro.allreduce(x.detach()).grad_fn is None
    assert corro.allgather(x).grad_fn is not None
