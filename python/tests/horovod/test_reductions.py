"""hvd.Average and the others: their numbers, and what they do to every dtype."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import corro
import horovod.torch as hvd

pytestmark = pytest.mark.usefixtures("job")

OPS = [hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product]
HOROVODS = [torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]
UNSIGNED = [getattr(torch, name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)]
MORE = [torch.uint8, torch.int8, torch.int16, torch.bfloat16, *UNSIGNED]
SHAPES = [(17,), (3, 5), (2, 3, 4), (0,)]


def mine(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.full(shape, hvd.rank() + 1, dtype=dtype)


def expected(op: Any, dtype: torch.dtype) -> float | int:
    values = range(1, hvd.size() + 1)
    average = sum(values) / hvd.size()
    found: dict[Any, float | int] = {
        hvd.Sum: sum(values),
        hvd.Average: average if dtype.is_floating_point else int(average),
        hvd.Min: 1,
        hvd.Max: hvd.size(),
        hvd.Product: math.prod(values),
    }
    return found[op]


def test_numbers_are_horovods() -> None:
    names = ["Average", "Sum", "Adasum", "Min", "Max", "Product"]
    assert [int(getattr(hvd, name)) for name in names] == [0, 1, 2, 3, 4, 5]
    assert hvd.Average == 0
    assert hvd.Sum != hvd.Average


@pytest.mark.parametrize("op", OPS, ids=str)
def test_numbers_and_corros_reductions_may_be_given(op: Any) -> None:
    want = torch.full((3,), expected(op, torch.float64), dtype=torch.float64)
    for same in (op, int(op), corro.ReduceOp[op.name]):
        torch.testing.assert_close(hvd.allreduce(mine(torch.float64, 3), op=same), want)
        reduced = hvd.synchronize(hvd.grouped_allreduce_async([mine(torch.float64, 3)], op=same))
        torch.testing.assert_close(reduced, [want])


@pytest.mark.parametrize("op", [6, -1, "sum", 1.5])
def test_what_is_no_reduction(op: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"there are hvd\.Average, Sum"):
        hvd.allreduce(torch.ones(1), op=op)
    with pytest.raises(NotImplementedError, match=r"there are hvd\.Average, Sum"):
        hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]), op=op)


@pytest.mark.parametrize("op", OPS, ids=str)
@pytest.mark.parametrize("dtype", [*HOROVODS, *MORE], ids=str)
def test_every_dtype_is_reduced(dtype: torch.dtype, op: Any) -> None:
    for shape in SHAPES:
        x = mine(dtype, *shape)
        before = x.clone()
        want = torch.full(shape, expected(op, dtype), dtype=dtype)
        for got in (hvd.allreduce(x, op=op), *hvd.grouped_allreduce([x, x], op=op)):
            assert got.dtype == dtype
            torch.testing.assert_close(got.double(), want.double(), rtol=0.01, atol=0)
        assert x.tolist() == before.tolist(), "what comes in is left alone"
        assert hvd.allreduce_(x, op=op) is x
        assert x.tolist() == hvd.allreduce(before, op=op).tolist()


def test_bools_are_reduced_by_and_and_or() -> None:
    x = torch.tensor([True, False, hvd.rank() == 0])
    several = hvd.size() > 1
    for op in (hvd.Sum, hvd.Max):
        assert hvd.allreduce(x, op=op).tolist() == [True, False, True]
    for op in (hvd.Min, hvd.Product):
        assert hvd.allreduce(x, op=op).tolist() == [True, False, not several]
    assert hvd.allreduce(x, op=hvd.Max).dtype == torch.bool


@pytest.mark.parametrize("dtype", [*HOROVODS, *MORE, torch.bool], ids=str)
def test_every_dtype_moves(dtype: torch.dtype) -> None:
    size, rank = hvd.size(), hvd.rank()
    x = mine(dtype, 2, 3)
    by_rank = [float(torch.tensor(r + 1).to(dtype)) for r in range(size)]
    assert hvd.allgather(x).double()[::2, 0].tolist() == by_rank
    for root in range(size):
        got = hvd.broadcast(x, root)
        assert got.dtype == dtype
        assert (got.double() == by_rank[root]).all()
    assert hvd.alltoall(mine(dtype, size)).double().tolist() == by_rank
    if dtype != torch.bool:
        part = hvd.reducescatter(mine(dtype, size), op=hvd.Sum)
        assert part.double().tolist() == [size * (size + 1) / 2]
    assert (hvd.broadcast_(mine(dtype, 4), size - 1).double() == by_rank[-1]).all()
    assert (x.double() == by_rank[rank]).all()


def test_averages_and_factors_of_integers_are_cut_off() -> None:
    """Horovod scales in double, and cuts off: a third of 10 is 3, of -10 is -3."""
    x = torch.tensor([10, -10], dtype=torch.int32)
    n = hvd.size()
    third = hvd.allreduce(x, op=hvd.Sum, postscale_factor=1 / 3)
    assert third.tolist() == [int(10 * n / 3), -int(10 * n / 3)]
    halves = hvd.allreduce(torch.tensor([3, -3]), op=hvd.Sum, prescale_factor=0.5)
    assert halves.tolist() == [n, -n], "each rank's part is cut off"
    one_more = torch.tensor([3, -3]) + (hvd.rank() == 0)
    assert hvd.allreduce(one_more).tolist() == [int((3 * n + 1) / n), int((-3 * n + 1) / n)]


def test_factors_of_every_reduction() -> None:
    x = mine(torch.float64, 3)
    for op in OPS:
        got = hvd.allreduce(x, op=op, postscale_factor=0.5)
        torch.testing.assert_close(got, torch.full_like(x, expected(op, x.dtype) * 0.5))
    doubled = hvd.allreduce(x, op=hvd.Max, prescale_factor=2.0)
    torch.testing.assert_close(doubled, torch.full_like(x, 2.0 * hvd.size()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=str)
def test_corros_average_is_of_those_who_have_not_joined(dtype: torch.dtype) -> None:
    """Rank r has r + 1 batches."""
    for batch in range(hvd.rank() + 1):
        left = [rank + 1 for rank in range(batch, hvd.size())]
        average = sum(left) / len(left)
        got = hvd.allreduce(mine(dtype, 3), op=corro.Average, name=f"batch {batch}")
        want = average if dtype.is_floating_point else int(average)
        torch.testing.assert_close(got.double(), torch.full((3,), want).double())
    hvd.join()
