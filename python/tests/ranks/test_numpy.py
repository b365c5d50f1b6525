"""corro.numpy, on every rank."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import corro
import corro.numpy as cn

pytestmark = pytest.mark.usefixtures("job")

DTYPES = ["bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]


def of(rank: int, dtype: str, count: int = 7) -> numpy.ndarray:
    return (numpy.arange(count) % 251 + 1 + rank).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 7, 100_003])
def test_allreduce_sums_every_dtype(dtype: str, count: int) -> None:
    result = cn.allreduce(of(corro.rank(), dtype, count), corro.Sum)
    expected = of(0, dtype, count)
    for rank in range(1, corro.size()):
        expected = expected + of(rank, dtype, count)
    assert result.dtype == expected.dtype
    numpy.testing.assert_array_equal(result, expected)


def test_averages_of_integers_round_toward_zero() -> None:
    # The sum is -(1 + 2 + ... + n), its average -(n + 1) / 2.
    result = cn.allreduce(numpy.array([-1 - corro.rank()]))
    assert result[0] == -((corro.size() + 1) // 2)


def test_the_argument_is_not_changed_but_out_is() -> None:
    x = numpy.ones(5)
    cn.allreduce(x, corro.Sum)
    numpy.testing.assert_array_equal(x, 1.0)
    assert cn.allreduce(x, corro.Sum, out=x) is x
    numpy.testing.assert_array_equal(x, float(corro.size()))


def test_lists_scalars_and_strided_arrays() -> None:
    numpy.testing.assert_array_equal(
        cn.allreduce([1, 2], corro.Sum), numpy.array([1, 2]) * corro.size()
    )
    assert cn.allreduce(numpy.float64(2.5)).shape == ()
    table = numpy.arange(12.0).reshape(3, 4)
    numpy.testing.assert_array_equal(cn.allreduce(table.T), table.T)
    cn.allreduce(table.T, corro.Sum, out=table.T)
    numpy.testing.assert_array_equal(table.ravel(), numpy.arange(12.0) * corro.size())


def test_allgather_refuses_other_rows_on_every_rank_and_goes_on() -> None:
    if corro.size() == 1:
        return
    with pytest.raises(corro.MismatchError, match="rank"):
        cn.allgather(numpy.zeros((1, 2 + (corro.rank() == 1))))
    assert cn.allreduce(1, corro.Sum) == corro.size()


def test_allgather_with_known_sizes() -> None:
    n, rank = corro.size(), corro.rank()
    result = cn.allgather(numpy.full((rank, 2), rank), sizes=list(range(n)))
    assert result[:, 0].tolist() == [r for r in range(n) for _ in range(r)]
    right = [3] * n
    own_differs = [4 if r == rank else 3 for r in range(n)]
    other = [[3] * rank + [3, bad] + [3] * (n - rank - 2) for bad in (-1, -(1 << 63), 1 << 62)]
    for wrong in ([], right[1:], [*right, 3], own_differs, [-3] * n, [1 << 62] * n, *other):
        with pytest.raises(corro.InvalidArgumentError, match="sizes"):
            cn.allgather(numpy.zeros((3, 2)), sizes=wrong)
    assert cn.allreduce(1, corro.Sum) == n


@pytest.mark.parametrize("root", ["first", "last"])
def test_rooted_verbs(root: str) -> None:
    chosen = 0 if root == "first" else corro.size() - 1
    mine = numpy.arange(3) + 10 * corro.rank()
    numpy.testing.assert_array_equal(cn.broadcast(mine, chosen), numpy.arange(3) + 10 * chosen)
    reduced = cn.reduce(mine, chosen, corro.Max)
    gathered = cn.gather(mine[: 1 + corro.rank() % 2], chosen)
    every = numpy.concatenate([numpy.arange(1 + r % 2) + 10 * r for r in range(corro.size())])
    out = numpy.empty(2, numpy.int64)
    cn.scatter(numpy.arange(2 * corro.size()) if corro.rank() == chosen else None, out, chosen)
    numpy.testing.assert_array_equal(out, [2 * corro.rank(), 2 * corro.rank() + 1])
    if corro.rank() != chosen:
        assert reduced is None
        assert gathered is None
    else:
        numpy.testing.assert_array_equal(reduced, numpy.arange(3) + 10 * (corro.size() - 1))
        numpy.testing.assert_array_equal(gathered, every)


@pytest.mark.parametrize(("dtype", "other"), [("f4", "f8"), ("f8", "f4"), ("c8", "c16")])
def test_another_dtype_than_out_is_an_error(dtype: str, other: str) -> None:
    alone = [corro.new_group([r]) for r in range(corro.size())][corro.rank()]
    x, out = numpy.ones(3, other), numpy.zeros(3, dtype)
    with pytest.raises(corro.InvalidArgumentError, match="dtype"):
        cn.scatter(x, out, corro.rank(), group=alone)
    with pytest.raises(corro.InvalidArgumentError, match="dtype"):
        cn.broadcast(x, corro.rank(), out=out, group=alone)
    assert not out.any()
    cn.scatter(x, numpy.zeros(3, other), corro.rank(), group=alone)


def test_send_and_recv_in_a_ring() -> None:
    n, rank = corro.size(), corro.rank()
    if n == 1:
        return
    sending = cn.send_async(numpy.full(4, rank), (rank + 1) % n, tag=7)
    got = cn.recv(numpy.empty(4, numpy.int64), (rank - 1) % n, tag=7)
    sending.wait()
    numpy.testing.assert_array_equal(got, (rank - 1) % n)


def test_a_receive_that_does_not_fit_leaves_other_tags_alone() -> None:
    tags = range(1, 5)
    if corro.size() > 1 and corro.rank() == 0:
        for tag in (1, *tags, *tags):
            cn.send(numpy.full(4, tag), 1, tag=tag)
    if corro.rank() == 1:
        with pytest.raises(corro.MismatchError, match=r"rank 0 called send\(i64\[4\]\)"):
            cn.recv(numpy.empty(3, numpy.int64), 0, tag=1)
        for tag in (*tags, *tags):
            assert cn.recv(numpy.empty(4, numpy.int64), 0, tag=tag).tolist() == [tag] * 4


def test_early_messages_are_bounded_however_much_was_sent_on_another_tag() -> None:
    small, early = numpy.ones(1), 64  # Of 1 MiB each.
    engine = corro._context.current().engine
    if corro.size() > 1 and corro.rank() == 0:
        for _ in range(1000):
            cn.send(small, 1, tag=1)
        sending = [cn.send_async(numpy.full(1 << 17, i), 1, tag=2) for i in range(early)]
        for _ in range(200):
            cn.send(small, 1, tag=3)
            cn.recv(small, 1, tag=3)
        for handle in sending:
            handle.wait()
    if corro.rank() == 1:
        before = engine.counter("bytes_received")
        for _ in range(1000):
            cn.recv(small, 0, tag=1)
        for _ in range(200):  # Other tags are not held up, and what is early has time to come.
            cn.recv(small, 0, tag=3)
            cn.send(small, 0, tag=3)
        # The limit of 4 MiB, and what was on its way in sockets or rings when it was passed.
        assert engine.counter("bytes_received") - before <= 16 << 20
        for i in range(early):
            assert (cn.recv(numpy.empty(1 << 17, numpy.int64), 0, tag=2) == i).all()


def test_wrong_arguments_are_told_by_the_name_that_was_called() -> None:
    with pytest.raises(
        TypeError, match=r"^allreduce\(\) missing 1 required positional argument: 'x'"
    ):
        cn.allreduce()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^broadcast\(\) got an unexpected keyword argument 'rot'"):
        cn.broadcast_async(numpy.ones(1), rot=1)  # type: ignore[call-arg]


def test_dtypes_without_arithmetic_can_move() -> None:
    mine = numpy.array([1 + 2j, corro.rank()])
    numpy.testing.assert_array_equal(cn.broadcast(mine), numpy.array([1 + 2j, 0]))
    assert cn.allgather(mine).shape == (2 * corro.size(),)
    with pytest.raises(corro.InvalidArgumentError, match=r"complex128; there is for bool, int8"):
        cn.allreduce(mine)
    with pytest.raises(ValueError, match="Python objects"):
        cn.broadcast(numpy.array([object()]))


def test_many_in_flight_and_dropped_handles() -> None:
    handles = [cn.allreduce_async(numpy.full(100, float(i)), corro.Sum) for i in range(64)]
    for _ in range(64):
        cn.allreduce_async(numpy.ones(1000))  # Nobody waits: its buffers live until it is done.
    for i, handle in enumerate(handles):
        numpy.testing.assert_array_equal(cn.synchronize(handle), i * corro.size())
        assert cn.poll(handle)
    cn.barrier()


def test_objects() -> None:
    mine = {"rank": corro.rank(), "list": [None] * corro.rank()}
    assert corro.broadcast_object(mine, corro.size() - 1)["rank"] == corro.size() - 1
    assert [one["rank"] for one in corro.allgather_object(mine)] == list(range(corro.size()))
    with pytest.raises(corro.InvalidArgumentError, match="rank 0 cannot send it"):
        corro.broadcast_object(None if corro.rank() else (i for i in range(3)))


def test_grouped_allreduce() -> None:
    xs = [numpy.full(n, 1.0 + n) for n in (1, 0, 5)]
    results = cn.grouped_allreduce(xs, corro.Sum)
    for x, result in zip(xs, results, strict=True):
        numpy.testing.assert_array_equal(result, x * corro.size())
    with pytest.raises(corro.InvalidArgumentError):
        cn.grouped_allreduce([])


def test_arena_arrays() -> None:
    x = cn.empty((3, 5), numpy.float32)
    numpy.testing.assert_array_equal(x, 0)
    x[:] = corro.rank()
    cn.allreduce(x, corro.Sum, out=x)
    numpy.testing.assert_array_equal(x, sum(range(corro.size())))
    assert cn.empty(0).shape == (0,)


def test_groups() -> None:
    n, rank = corro.size(), corro.rank()
    even = corro.new_group(range(0, n, 2))
    assert even.included() == (rank % 2 == 0)
    if rank % 2 == 0:
        assert cn.allreduce(rank, corro.Sum, group=even) == sum(range(0, n, 2))
        # Ranks in arguments are ranks of the world.
        last = even.ranks[-1]
        assert cn.broadcast(rank, last, group=even) == last
        assert even.rank() == rank // 2
    else:
        with pytest.raises(corro.FailedPreconditionError, match="not in the group"):
            cn.allreduce(rank, group=even)
    with pytest.raises(corro.InvalidArgumentError, match="twice"):
        corro.new_group([0, 0])


def test_one_name_for_different_members_is_an_error_that_shows_both() -> None:
    ranks = list(range(corro.size()))
    if len(ranks) == 1:
        return
    group = corro.new_group(ranks if corro.rank() == 0 else ranks[::-1], name="twice")
    with pytest.raises(corro.InvalidArgumentError, match="disagree on the members") as failure:
        cn.allreduce(1, group=group)
    assert str(ranks) in str(failure.value)
    assert str(ranks[::-1]) in str(failure.value)
    corro.barrier()


@pytest.mark.parametrize(
    ("mine", "theirs", "told"),
    [
        ({"x": numpy.ones((2, 3))}, {"x": numpy.ones((3, 2))}, r"allreduce\(f64\[3,2\]"),
        ({"x": numpy.ones(4)}, {"x": numpy.ones((4, 1))}, r"allreduce\(f64\[4,1\]"),
        ({"x": numpy.float64(1)}, {"x": numpy.ones(1)}, r"allreduce\(f64\[\], average\)"),
        (
            {"x": numpy.ones(4)},
            {"x": numpy.ones(4), "postscale_factor": 0.5},
            "with other scales",
        ),
    ],
)
def test_arguments_that_differ_in_no_count_are_an_error_too(
    mine: dict[str, Any], theirs: dict[str, Any], told: str
) -> None:
    if corro.size() == 1:
        return
    with pytest.raises(corro.MismatchError, match=told):
        cn.allreduce(**(theirs if corro.rank() == 1 else mine))
    cn.barrier()


def test_another_shape_is_an_error_on_every_rank_and_the_group_goes_on() -> None:
    if corro.size() == 1:
        return

    def disagree() -> None:
        cn.allreduce(numpy.zeros(3 + (corro.rank() == 1)))
        cn.barrier()  # A rank that had returned already hears of it from its next call.

    with pytest.raises(corro.MismatchError) as caught:
        disagree()
    assert caught.value.op == "allreduce"
    assert isinstance(caught.value, ValueError)
    cn.barrier()
    assert cn.allreduce(1, corro.Sum) == corro.size()


def test_a_factor_may_be_zero() -> None:
    assert cn.allreduce(numpy.ones(2), prescale_factor=0.0).tolist() == [0, 0]
    assert cn.allreduce(numpy.ones(2), postscale_factor=0).tolist() == [0, 0]
