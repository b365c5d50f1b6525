"""Names may come in any order, on every rank. Without torch, which takes seconds to come."""

from __future__ import annotations

import gc
import random
import threading
import time

import numpy
import pytest

import corro
import corro.numpy as cn
from corro import _native

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]


def shuffled(count: int, seed: int) -> list[int]:
    """Returns 0 ... count - 1 in an order that differs from rank to rank."""
    order = list(range(count))
    random.Random(seed * 1000 + corro.rank()).shuffle(order)
    return order


def total(i: int) -> int:
    """Returns the sum of every rank's i * 10 + rank."""
    return sum(i * 10 + rank for rank in range(corro.size()))


def test_numpy_arrays_in_another_order_on_each_rank() -> None:
    for step in range(5):
        handles = {
            i: cn.allreduce_async(
                numpy.full(1 + i * 7, i * 10 + corro.rank()), corro.Sum, f"numpy.{i}"
            )
            for i in shuffled(40, step)
        }
        for i in shuffled(40, step + 100):
            numpy.testing.assert_array_equal(
                handles[i].wait(), numpy.full(1 + i * 7, total(i)), strict=True
            )


def test_other_verbs_by_name() -> None:
    n, rank = corro.size(), corro.rank()
    pair = [numpy.ones(3), numpy.ones((2, 2))]
    start = {
        "grouped": lambda: cn.grouped_allreduce_async(pair, corro.Sum, "pair"),
        "broadcast": lambda: cn.broadcast_async(numpy.full(3, rank), n - 1, "model"),
        "reduce": lambda: cn.reduce_async(numpy.full(3, 1.0), 0, corro.Sum, "loss"),
        "scattered": lambda: cn.reducescatter_async(numpy.ones(2 * n), corro.Sum, "rows"),
    }
    names = list(start)
    handles = {names[i]: start[names[i]]() for i in shuffled(len(names), 7)}
    results = {name: handle.wait() for name, handle in handles.items()}
    assert [array.shape for array in results["grouped"]] == [(3,), (2, 2)]
    assert all((array == n).all() for array in results["grouped"])
    numpy.testing.assert_array_equal(results["broadcast"], n - 1)
    if rank == 0:
        numpy.testing.assert_array_equal(results["reduce"], float(n))
    numpy.testing.assert_array_equal(results["scattered"], float(n))


def rows_of(i: int, rank: int) -> numpy.ndarray:
    """Returns rows as many as differ by rank and operation; some have none."""
    return numpy.full(((rank + i) % 3, 2), 10 * i + rank)


def test_sizes_that_differ_by_rank_in_another_order_on_each() -> None:
    """Each waits in an order of its own for what has two stages."""
    n, rank = corro.size(), corro.rank()
    gathered = {i: cn.allgather_async(rows_of(i, rank), f"gather.{i}") for i in shuffled(20, 1)}
    sent = {
        i: cn.alltoall_async(
            numpy.full(sum((i + r) % 3 for r in range(n)), 10 * i + rank),
            [(i + r) % 3 for r in range(n)],
            f"send.{i}",
        )
        for i in shuffled(20, 2)
    }
    for i in shuffled(20, 3):
        expected = numpy.concatenate([rows_of(i, r) for r in range(n)])
        numpy.testing.assert_array_equal(gathered[i].wait(), expected, strict=True)
        assert gathered[i].done()
    for i in shuffled(20, 4):
        out, received = sent[i].wait()
        assert received == [(i + rank) % 3] * n
        expected = numpy.repeat(numpy.arange(n) + 10 * i, (i + rank) % 3)
        numpy.testing.assert_array_equal(out, expected)
    numpy.testing.assert_array_equal(
        cn.allgather(rows_of(1, rank), "gather"),
        numpy.concatenate([rows_of(1, r) for r in range(n)]),
    )


def test_rows_that_come_outlive_their_handle() -> None:
    """The last rank starts once all others have dropped what they have started."""
    n, late = corro.size(), corro.rank() == corro.size() - 1
    x = numpy.full((1 << 12, 2), corro.rank())
    if late:
        corro.barrier()
    cn.allgather_async(x, "dropped")
    gc.collect()
    if not late:
        corro.barrier()
    handle = cn.allgather_async(x, "kept")
    part = handle.wait()[-1:]
    numpy.testing.assert_array_equal(handle.wait()[-1:], part)
    del handle
    gc.collect()
    others = [cn.allgather(x, f"other.{i}") for i in range(4)]
    assert part.tolist() == [[n - 1, n - 1]]
    assert all(one.shape == (n << 12, 2) for one in others)


@pytest.mark.parametrize("background", [False, True])
def test_rows_of_another_length_are_an_error_on_every_rank(background: bool) -> None:
    if corro.size() == 1:
        pytest.skip("one rank agrees with itself")
    x = numpy.zeros((2, 3 if corro.rank() == 0 else 4))
    with pytest.raises(corro.MismatchError, match="dimension 1 equal to"):
        _ = cn.allgather_async(x, "rows").wait() if background else cn.allgather(x, "rows")
    assert cn.allgather(numpy.zeros((1, 2)), "rows").shape == (corro.size(), 2)


def test_named_and_unnamed_calls_do_not_wait_for_each_other() -> None:
    early = cn.allreduce_async(1, corro.Sum, "mixed") if corro.rank() % 2 else None
    assert cn.allreduce(1, corro.Sum) == corro.size()
    late = early or cn.allreduce_async(1, corro.Sum, "mixed")
    assert late.wait() == corro.size()


def test_threads_may_block_in_any_order() -> None:
    results = {}

    def reduce(i: int) -> None:
        results[i] = cn.allreduce(i, corro.Sum, f"thread.{i}")

    threads = [threading.Thread(target=reduce, args=(i,)) for i in shuffled(6, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: i * corro.size() for i in range(6)}


def test_overlapping_groups() -> None:
    if corro.size() < 3:
        return
    groups = [corro.new_group([0, 1]), corro.new_group([2, 1])]
    mine = [i for i in shuffled(2, 5) if groups[i].included()]
    handles = {i: cn.allreduce_async(1, corro.Sum, "shared", group=groups[i]) for i in mine}
    assert all(handle.wait() == 2 for handle in handles.values())


def test_a_repeated_step_sends_no_message_and_an_idle_one_wakes_nobody() -> None:
    engine = corro._context.current().engine

    def step() -> None:
        # None is empty: over TCP an array without elements is over before all have begun it, so a
        # step with one is never learned.
        arrays = [numpy.ones(i + 1) for i in range(20)]
        handles = [cn.allreduce_async(x, corro.Sum, f"step.{x.size}") for x in arrays]
        assert all((handle.wait() == corro.size()).all() for handle in handles)

    for _ in range(30):
        step()
        corro.barrier()
    messages = engine.counter("named_messages")
    for _ in range(5):
        step()
        corro.barrier()
    assert engine.counter("named_messages") == messages
    corro.barrier()
    time.sleep(0.05)  # The progress thread goes to sleep for good.
    before = engine.counter("wakeups")
    time.sleep(0.3)
    assert engine.counter("wakeups") - before <= 2, "an idle engine sleeps without a timer"


def test_one_rank_alone_may_wait_inside_a_learned_step() -> None:
    # It logs a value now and then; its peers have begun the whole bucket by then.
    names = ["loss", "accuracy", "top5", "norm"]
    for step in range(120):
        handles = {}
        logs = step >= 60 and step % 20 == 0 and corro.rank() == step // 20 % corro.size()
        for name in names:
            handles[name] = cn.allreduce_async(numpy.full(3, float(step)), corro.Sum, name)
            if name == "accuracy" and logs:
                numpy.testing.assert_array_equal(handles.pop(name).wait(), step * corro.size())
        for handle in handles.values():
            numpy.testing.assert_array_equal(handle.wait(), step * corro.size())


@pytest.mark.parametrize("grouped", [False, True])
def test_thousands_of_short_names_at_once(grouped: bool) -> None:
    arrays = [numpy.full(3, i * 10 + corro.rank()) for i in range(3000)]
    if grouped:
        results = cn.grouped_allreduce(arrays, corro.Sum, "g")
    else:
        handles = [
            cn.allreduce_async(array, corro.Sum, f"layer{i}") for i, array in enumerate(arrays)
        ]
        results = [handle.wait() for handle in handles]
    for i, result in enumerate(results):
        numpy.testing.assert_array_equal(result, total(i))


def test_a_difference_names_both_sides_and_the_group_goes_on() -> None:
    if corro.size() == 1:
        return
    handle = cn.allreduce_async(numpy.ones(3 + (corro.rank() == 1)), corro.Sum, "differs")
    one_side = r"differs.*rank 1 submitted allreduce\(f64\[4\]"
    with pytest.raises(corro.MismatchError, match=one_side) as error:
        handle.wait()
    assert error.value.op == "allreduce"
    assert cn.allreduce(1, corro.Sum, "differs") == corro.size()


def test_a_name_that_waits_cannot_be_given_twice() -> None:
    if corro.size() == 1:
        return
    corro.barrier()
    if corro.rank() == 0:
        first = cn.allreduce_async(1, corro.Sum, "twice")
        with pytest.raises(corro.AlreadyExistsError, match="twice"):
            cn.allreduce(1, corro.Sum, "twice")
    corro.barrier()
    if corro.rank() != 0:
        first = cn.allreduce_async(1, corro.Sum, "twice")
    assert first.wait() == corro.size()


def test_a_rank_that_never_gives_the_name_is_named() -> None:
    n = corro.size()
    if n == 1:
        return
    for absent in (0, n - 1):
        if corro.rank() != absent:
            op = _native.Op(kind=_native.BARRIER, timeout=0.5, name=f"without {absent}")
            with pytest.raises(
                corro.TimeoutError, match=f"not submitted by rank {absent}"
            ) as error:
                corro.world().native.run([op], None, named=True)
            assert error.value.rank == absent
        corro.barrier()
    assert cn.allreduce(1, corro.Sum, "afterwards") == n


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "two\nlines"])
def test_names_are_printable(name: str) -> None:
    with pytest.raises(corro.InvalidArgumentError, match="name has to be printable"):
        cn.allreduce(1, name=name)
