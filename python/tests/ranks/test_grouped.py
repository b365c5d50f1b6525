"""Verbs on several tensors as one unit, and on sparse ones, on every rank."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from costs import Calls

import corro.numpy as cn
import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]

NAMES = [None, "several"]


def mine(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.full(shape, corro.rank() + 1).to(dtype)


def rows() -> list[torch.Tensor]:
    """Of another length on each rank; the first has no rows on rank 0."""
    return [
        mine(corro.rank(), 2),
        mine(corro.size() - corro.rank(), dtype=torch.int32),
        mine(1, 3, dtype=torch.bfloat16),
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("background", [False, True])
def test_grouped_allgather_is_allgather_of_each(name: str | None, background: bool) -> None:
    xs = rows()
    if background:
        gathered = corro.grouped_allgather_async(xs, name).wait()
    else:
        gathered = corro.grouped_allgather(xs, name)
    for got, x in zip(gathered, xs, strict=True):
        assert got.dtype == x.dtype
        assert torch.equal(got, corro.allgather(x))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("background", [False, True])
def test_grouped_reducescatter_is_reducescatter_of_each(name: str | None, background: bool) -> None:
    xs = [mine(2 * corro.size() + 1, 2), mine(corro.size(), dtype=torch.float32)]
    how: Any = {"prescale_factor": 2.0, "postscale_factor": 0.25}
    if background:
        parts = corro.grouped_reducescatter_async(xs, corro.Sum, name, **how).wait()
    else:
        parts = corro.grouped_reducescatter(xs, corro.Sum, name, **how)
    for part, x in zip(parts, xs, strict=True):
        assert torch.equal(part, corro.reducescatter(x, corro.Sum, **how))


def test_a_group_is_one_call_of_the_engine_for_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine tells the sizes of named ones itself; else they are the first stage."""
    world = corro.world()
    for name in NAMES:
        stages = 1 if name else 2
        seen = Calls(world.native)
        with monkeypatch.context() as patch:
            patch.setattr(world, "_native", seen)
            corro.grouped_allgather(rows(), name, group=world)
            assert seen.names.count("run") == stages
            corro.grouped_reducescatter([mine(corro.size())] * 3, name=name, group=world)
            assert seen.names.count("run") == stages + 1


def test_groups_by_name_in_another_order_on_each_rank() -> None:
    start = {
        **{f"g{i}": lambda i=i: corro.grouped_allgather_async(rows(), f"g{i}") for i in range(4)},
        **{
            f"s{i}": lambda i=i: corro.sparse_allreduce_async(sparse(), corro.Sum, f"s{i}")
            for i in range(4)
        },
    }
    order = list(start)
    random.Random(corro.rank()).shuffle(order)
    handles = {name: start[name]() for name in order}
    random.Random(corro.rank() + 100).shuffle(order)
    results = {name: handles[name].wait() for name in order}
    for i in range(4):
        assert all(map(torch.equal, results[f"g{i}"], corro.grouped_allgather(rows())))
        assert torch.equal(results[f"s{i}"].to_dense(), dense_sum())


@pytest.mark.parametrize("name", NAMES)
def test_a_difference_in_one_of_the_arrays_is_an_error_on_every_rank(name: str | None) -> None:
    if corro.size() == 1:
        return
    xs = [mine(2), mine(2, 3 + corro.rank())]
    text = "dimension 1 equal to" if name else "a row has 3 elements on rank 0 but 4 on"
    for gather in (corro.grouped_allgather, lambda *a: corro.grouped_allgather_async(*a).wait()):
        with pytest.raises(corro.MismatchError, match=text):
            gather(xs, name)
    assert corro.allreduce(mine(1), corro.Max).item() == corro.size()


def test_no_arrays_are_refused() -> None:
    for verb in (corro.grouped_allgather, corro.grouped_reducescatter, cn.grouped_allgather):
        with pytest.raises(corro.InvalidArgumentError, match=r"grouped_.*: no arrays given"):
            verb([])


def test_numpy_has_them_too() -> None:
    xs = [x.numpy() for x in (mine(corro.rank(), 2), mine(1, 3))]
    for got, x in zip(cn.grouped_allgather(xs), xs, strict=True):
        assert (got == cn.allgather(x)).all()
    whole = mine(2 * corro.size()).numpy()
    for part in cn.grouped_reducescatter_async([whole, whole], name="numpy").wait():
        assert (part == cn.reducescatter(whole)).all()


# -- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_a_group_are_those_of_each(name: str | None) -> None:
    size = corro.size()
    for grouped, single, shapes in (
        (corro.grouped_allgather, corro.allgather, [(corro.rank(), 2), (3,)]),
        (corro.grouped_reducescatter, corro.reducescatter, [(2 * size + 1, 2), (size,)]),
    ):
        alone = [mine(*shape).requires_grad_() for shape in shapes]
        together = [x.detach().clone().requires_grad_() for x in alone]
        sum((single(x) * (corro.rank() + 2)).sum() for x in alone).backward()
        sum((y * (corro.rank() + 2)).sum() for y in grouped(together, name=name)).backward()
        for x, y in zip(alone, together, strict=True):
            assert torch.equal(x.grad, y.grad)


def test_a_group_may_have_integers_and_results_that_nobody_uses() -> None:
    x, unused = mine(2).requires_grad_(), mine(2).requires_grad_()
    y, _, integers = corro.grouped_allgather([x, unused, mine(1, dtype=torch.int64)])
    assert not integers.requires_grad
    y.sum().backward()
    assert (x.grad == corro.size()).all()
    assert (unused.grad == 0).all()


# -- compression ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reducescatter", "grouped_reducescatter"])
def test_a_compressed_reducescatter_is_rounded(name: str) -> None:
    """2049 is no float16. Integers stay as they are, and gradients travel whole."""
    if corro.size() == 1:
        return
    grouped = name.startswith("grouped")

    def scatter(x: torch.Tensor) -> torch.Tensor:
        how: Any = {"op": corro.Average, "compression": corro.Compression.fp16}
        verb = getattr(corro, name)
        part: torch.Tensor = verb([x], **how)[0] if grouped else verb(x, **how)
        return part

    x = torch.full((corro.size(), 2), 2049.0, requires_grad=True)
    part = scatter(x)
    assert part.dtype == torch.float32
    torch.testing.assert_close(part, torch.full_like(part, 2048.0))
    (part * 2049.0 * corro.size()).sum().backward()
    assert (x.grad == 2049.0).all()
    assert (scatter(torch.full((corro.size(), 2), 2049)) == 2049).all()


# -- sparse ---------------------------------------------------------------------------------------


def sparse(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Row 0 is every rank's, row rank + 1 this one's alone; this one's comes twice."""
    own = corro.rank() + 1
    values = torch.tensor([[1, 2], [3, 4], [5, 6]]).to(dtype)
    return torch.sparse_coo_tensor(
        [[0, own, own]], values, (corro.size() + 2, 2), check_invariants=True
    )


def dense_sum() -> torch.Tensor:
    first = torch.tensor([[1.0, 2.0]]) * corro.size()
    return torch.cat([first, torch.tensor([[8.0, 10.0]] * corro.size()), torch.zeros(1, 2)])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("background", [False, True])
def test_sparse_tensors_are_added_up(name: str | None, background: bool) -> None:
    def reduce(x: torch.Tensor, op: corro.ReduceOp) -> torch.Tensor:
        if background:
            return corro.sparse_allreduce_async(x, op, name).wait()
        return corro.sparse_allreduce(x, op, name)

    assert torch.equal(reduce(sparse(), corro.Sum).to_dense(), dense_sum())
    torch.testing.assert_close(
        reduce(sparse(), corro.Average).to_dense(), dense_sum() / corro.size()
    )
    integers = reduce(sparse(torch.int64), corro.Sum)
    assert integers.dtype == torch.int64
    assert torch.equal(integers.to_dense(), dense_sum().long())


def test_ranks_may_have_nothing_to_add() -> None:
    none = torch.sparse_coo_tensor(size=(3, 4))
    one = torch.sparse_coo_tensor([[1], [2]], [7.0], (3, 4))
    reduced = corro.sparse_allreduce(one if corro.rank() == 0 else none, corro.Sum)
    assert torch.equal(reduced.to_dense(), one.to_dense())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", ["shape", "op", "dims"])
def test_sparse_tensors_that_differ_are_an_error_on_every_rank(what: str, name: str | None) -> None:
    """A smaller tensor has no place for the others' indices."""
    if corro.size() == 1:
        return
    first = corro.rank() == 0
    shape = (9 if what == "shape" and not first else 5, 2)
    if what == "dims" and not first:
        x = torch.sparse_coo_tensor([[1], [1]], [1.0], shape)
    else:
        x = torch.sparse_coo_tensor([[shape[0] - 1]], torch.ones(1, 2), shape)
    op = corro.Average if what == "op" and not first else corro.Sum
    text = {
        "shape": r"SUM of shape \[5, 2\] on rank 0, but SUM of shape \[9, 2\] on rank 1",
        "op": r"SUM of shape \[5, 2\] on rank 0, but AVERAGE of shape \[5, 2\] on rank 1",
        "dims": "Mismatched ALLGATHER tensor shapes",
    }[what]
    with pytest.raises(corro.MismatchError, match=text):
        corro.sparse_allreduce(x, op, name)
    assert torch.equal(corro.sparse_allreduce(sparse(), corro.Sum).to_dense(), dense_sum())


def test_what_is_not_sparse_is_refused() -> None:
    with pytest.raises(corro.InvalidArgumentError, match=r"layout torch\.strided"):
        corro.sparse_allreduce(mine(2))
    with pytest.raises(corro.InvalidArgumentError, match="not one float"):
        corro.sparse_allreduce(1.0)
    with pytest.raises(corro.InvalidArgumentError, match="summed up or averaged, not"):
        corro.sparse_allreduce(sparse(), corro.Max)
