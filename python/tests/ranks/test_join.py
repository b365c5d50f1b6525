"""Ranks with fewer batches join, the others go on. Without torch, which takes seconds to come."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest

import corro
import corro.numpy as cn

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]

OPERATORS = [corro.Sum, corro.Average, corro.Min, corro.Max, corro.Product]
DTYPES = ["float64", "float32", "float16", "int64", "int32", "int8", "uint8"]


def value(rank: int, batch: int) -> int:
    """Returns what a rank gives in a batch; a product of four fits every type."""
    return 1 + (rank + batch) % 3


def expected(op: corro.ReduceOp, dtype: str, values: list[int]) -> float:
    """Returns what the ranks that have the batch get."""
    if op == corro.Average:
        mean = sum(values) / len(values)
        return math.trunc(mean) if "int" in dtype else mean
    result = {
        corro.Sum: sum,
        corro.Min: min,
        corro.Max: max,
        corro.Product: math.prod,
    }[op](values)
    return float(result)


def train(batches: list[int], group: Any = None, plan: bool = False) -> int:
    """Reduces every type with every operator in so many batches of this rank, then joins."""
    group = group or corro.world()
    me = group.rank()
    cases = [(op, dtype) for op in OPERATORS for dtype in DTYPES]
    if plan:
        cases = cases * 2  # Two rounds of so many operations become a static plan.
    for batch in range(batches[me]):
        order = (
            range(len(cases))
            if plan
            else sorted(range(len(cases)), key=lambda i: i * (me + 3) % 31)
        )
        handles = {
            i: cn.allreduce_async(
                numpy.full(1 + i * 5, value(me, batch), cases[i][1]),
                cases[i][0],
                f"case.{i}",
                group=group,
            )
            for i in order
        }
        taking_part = [value(rank, batch) for rank, has in enumerate(batches) if has > batch]
        for i, handle in handles.items():
            op, dtype = cases[i]
            result = handle.wait()
            assert result.dtype == dtype
            numpy.testing.assert_allclose(
                result.astype("float64"), expected(op, dtype, taking_part), rtol=1e-3
            )
    return corro.join(group)


def agreed(last: int, group: Any = None) -> None:
    """Every rank of the group has been told the same."""
    group = group or corro.world()
    told = cn.allgather(numpy.array([last]), group=group)
    assert set(told.tolist()) == {last}
    assert last in group.ranks


def test_uneven_batches_of_every_operator_and_type_twice_in_a_row() -> None:
    size = corro.size()
    agreed(train([3 + rank for rank in range(size)]))
    agreed(train([2 * (size - rank) for rank in range(size)]))


def test_joining_out_of_a_static_plan() -> None:
    size = corro.size()
    for longest in range(size):
        batches = [24 if rank == longest else 15 + rank for rank in range(size)]
        last = train(batches, plan=True)
        agreed(last)
        assert last == longest or size == 1


def test_running_out_of_data_inside_a_learned_step() -> None:
    n, rank = corro.size(), corro.rank()

    def start(k: int) -> Any:
        return cn.allreduce_async(numpy.full(5, rank + 1.0), name=f"part.{k}")

    for _ in range(60):
        for handle in [start(k) for k in range(4)]:
            handle.wait()
    # The last rank has half a step, waits for that, and joins.
    half = n > 1 and rank == n - 1
    for k, handle in enumerate([start(k) for k in range(2 if half else 4)]):
        ranks = n if k < 2 or n == 1 else n - 1
        numpy.testing.assert_allclose(handle.wait(), (ranks + 1) / 2)
    corro.join()


def test_a_group_of_some_ranks() -> None:
    members = list(range(corro.size()))[:2][::-1]
    group = corro.new_group(members)
    if group.included():
        agreed(train([1, 4][: len(members)], group), group)
    corro.barrier()


def test_joining_at_once() -> None:
    agreed(corro.join())


def test_other_verbs_raise_while_a_rank_has_joined() -> None:
    size, rank = corro.size(), corro.rank()
    if size == 1:
        return
    if rank < size - 1:
        with pytest.raises(corro.FailedPreconditionError) as caught:
            cn.broadcast(numpy.ones(3), 0, name="weights")
        assert str(caught.value).startswith("Broadcast is not supported with Join at this time.")
        assert caught.value.rank == size - 1
        assert caught.value.op == "broadcast"
        with pytest.raises(corro.FailedPreconditionError, match=r"^Allgather is not supported"):
            cn.allgather(numpy.ones(rank + 1), name="rows")
        assert cn.allreduce(1, corro.Sum, "goes on") == size - 1
    agreed(corro.join())
    assert cn.allreduce(1, corro.Sum, "after") == size


def test_a_timeout_ends_the_wait_and_not_the_join() -> None:
    if corro.size() == 1:
        return
    if corro.rank() == 1:
        with pytest.raises(corro.TimeoutError, match="not joined by rank 0"):
            corro.join(timeout=0.05)
        with pytest.raises(corro.FailedPreconditionError, match="this rank has joined"):
            cn.allreduce(1, corro.Sum, "too late")
    corro.barrier()
    agreed(corro.join())
