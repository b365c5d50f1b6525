"""Elements that are only moved, in every verb: ranks have to agree in what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import corro
import corro.numpy as cn
import corro.torch as ct

pytestmark = pytest.mark.usefixtures("job")

RECORD = [("a", "<i4"), ("b", "<f4")]
# Of one size each: (what rank 0 has, what all others have, what of both a message says).
NUMPY = [
    ("complex64", "M8[s]", ["complex64", "datetime64[s]"]),
    ("M8[s]", "M8[ms]", ["datetime64[s]", "datetime64[ms]"]),
    (">f4", ">i4", ["float32 in the other byte order", "int32 in the other byte order"]),
    (">f8", "<c8", ["float64 in the other byte order", "complex64"]),
    ("c16", "u1", ["complex128", "u"]),  # An engine's own dtype, by its name there.
    (RECORD, [("a", "<f4"), ("b", "<f4")], ["elements #"]),
    ("S8", "<U2", ["elements #"]),
]
TORCH = [
    (torch.float8_e4m3fn, torch.float8_e5m2, ["float8_e4m3fn", "float8_e5m2"]),
    (torch.complex64, torch.float64, ["complex64", "f"]),
]


def verbs(library: Any, of: Any, to: Callable[[int], Any]) -> dict[str, Callable[[], object]]:
    """Returns calls of every verb that moves; `to` makes the array that a receive fills."""
    next_rank = (corro.rank() + 1) % corro.size()
    last_rank = (corro.rank() - 1) % corro.size()

    def ring() -> object:
        if corro.size() == 1:
            return of  # A rank cannot exchange with itself.
        sent = library.send_async(of, next_rank, tag=7)
        try:
            return library.recv(to(len(of)), last_rank, tag=7)
        finally:
            sent.wait()

    return {
        "broadcast": lambda: library.broadcast(of),
        "broadcast by name": lambda: library.broadcast(of, name="b"),
        "broadcast async": lambda: library.broadcast_async(of, name="c").wait(),
        "allgather": lambda: library.allgather(of),
        "allgather by name": lambda: library.allgather(of, name="a"),
        "grouped allgather": lambda: library.grouped_allgather([of, of]),
        "alltoall": lambda: library.alltoall(of),
        "alltoall by name": lambda: library.alltoall(of, name="t"),
        "gather": lambda: library.gather(of),
        "scatter": lambda: library.scatter(
            of if corro.rank() == 0 else None, to(len(of) // corro.size())
        ),
        "send and recv": ring,
    }


NAMES = [
    "broadcast",
    "broadcast by name",
    "broadcast async",
    "allgather",
    "allgather by name",
    "grouped allgather",
    "alltoall",
    "alltoall by name",
    "gather",
    "scatter",
    "send and recv",
]


def refused(call: Callable[[], object], words: list[str], verb: str) -> None:
    if corro.size() == 1:
        call()
        return
    if verb == "send and recv" and corro.rank() not in (0, 1):
        call()  # What it gets is of its own kind; only two ranks border on another one.
        return
    with pytest.raises(corro.MismatchError) as raised:
        call()
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize("verb", NAMES)
@pytest.mark.parametrize(("one", "other", "words"), NUMPY)
def test_arrays_that_are_not_of_one_dtype(
    one: Any, other: Any, words: list[str], verb: str
) -> None:
    dtype = numpy.dtype(one if corro.rank() == 0 else other)
    if numpy.dtype(one).itemsize != numpy.dtype(other).itemsize and verb != "broadcast":
        pytest.skip("sizes differ, which is another mismatch")
    x = numpy.zeros(4 * corro.size(), dtype)
    refused(verbs(cn, x, lambda n: numpy.zeros(n, dtype))[verb], words, verb)
    corro.barrier()


@pytest.mark.parametrize("verb", NAMES)
@pytest.mark.parametrize(("one", "other", "words"), TORCH)
def test_tensors_that_are_not_of_one_dtype(
    one: Any, other: Any, words: list[str], verb: str
) -> None:
    dtype = one if corro.rank() == 0 else other
    x = torch.zeros(4 * corro.size()).to(dtype)
    refused(verbs(ct, x, lambda n: torch.zeros(n).to(dtype))[verb], words, verb)
    corro.barrier()


@pytest.mark.parametrize("verb", NAMES)
@pytest.mark.parametrize("dtype", ["complex64", "M8[s]", ">f4", RECORD, "S8"])
def test_arrays_of_one_dtype_are_moved(verb: str, dtype: Any) -> None:
    x = numpy.ones(4 * corro.size(), dtype)
    moved = verbs(cn, x, lambda n: numpy.zeros(n, dtype))[verb]()
    if verb == "gather" and corro.rank() > 0:
        return
    got = moved[0] if isinstance(moved, tuple | list) else moved
    assert got.dtype == x.dtype
    assert (got == x[0]).all()


def test_numpy_and_torch_call_a_dtype_the_same() -> None:
    x = numpy.full(3, 1 + 2j, numpy.complex64)
    if corro.rank() == 0:
        assert (cn.broadcast(x) == x).all()
    else:
        assert (ct.broadcast(torch.zeros(3, dtype=torch.complex64)).numpy() == x).all()
