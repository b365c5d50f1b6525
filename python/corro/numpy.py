"""corro's verbs on numpy arrays.

    import numpy, corro, corro.numpy

    corro.init()
    mean = corro.numpy.allreduce(numpy.arange(4.0))

Anything that numpy.asarray takes, or that speaks DLPack, is an array here. Every verb also has a
form whose name ends in ``_async``, which returns a Handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy
from numpy.typing import DTypeLike, NDArray

from corro import _arguments, _context, _native
from corro._calls import Handle, poll, running, starting, synchronize
from corro._context import Group, barrier, join
from corro._reduce_op import Adasum, Average, Max, Min, Product, ReduceOp, Sum
from corro._verbs import Frontend, Verbs
from corro.errors import InvalidArgumentError

__all__ = [
    "Adasum",
    "Average",
    "Group",
    "Handle",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_async",
    "empty",
    "gather",
    "gather_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "recv",
    "recv_async",
    "reduce",
    "reduce_async",
    "reducescatter",
    "reducescatter_async",
    "scatter",
    "scatter_async",
    "send",
    "send_async",
    "synchronize",
]

Array = NDArray[Any]

_DTYPES = {
    numpy.dtype(numpy.bool_): _native.BOOL,
    numpy.dtype(numpy.uint8): _native.U8,
    numpy.dtype(numpy.int8): _native.I8,
    numpy.dtype(numpy.int16): _native.I16,
    numpy.dtype(numpy.int32): _native.I32,
    numpy.dtype(numpy.int64): _native.I64,
    numpy.dtype(numpy.float16): _native.F16,
    numpy.dtype(numpy.float32): _native.F32,
    numpy.dtype(numpy.float64): _native.F64,
    numpy.dtype(numpy.uint16): _native.U16,
    numpy.dtype(numpy.uint32): _native.U32,
    numpy.dtype(numpy.uint64): _native.U64,
}


def _array(x: Any) -> Array:
    """Returns x as an array, without a copy where x's library offers DLPack."""
    if not isinstance(x, numpy.ndarray) and hasattr(x, "__dlpack__"):
        with suppress(BufferError, RuntimeError, TypeError):  # DLPack has no word for some dtypes.
            return numpy.from_dlpack(x)
    return numpy.asarray(x)


class _Numpy(Frontend[Array]):
    """numpy behind the verbs."""

    def arrays(self) -> _native.Arrays:
        return _native.Arrays(numpy.ndarray, numpy.empty_like, None)

    def dtype(self, x: Array) -> int | None:
        dtype = _array(x).dtype
        if dtype.hasobject:
            raise InvalidArgumentError(
                "an array of Python objects cannot be sent; there are corro.broadcast_object and"
                " corro.allgather_object"
            )
        return _DTYPES.get(dtype)

    def type_name(self, x: Array) -> str:
        dtype = _array(x).dtype
        if dtype.isnative or dtype.fields is not None:  # A record says the order of each field.
            return str(dtype)
        return f"{dtype.newbyteorder('=')} in the other byte order"

    def same_dtype(self, x: Array, y: Array) -> bool:
        return bool(_array(x).dtype == _array(y).dtype)

    def itemsize(self, x: Array) -> int:
        return _array(x).itemsize

    def shape(self, x: Array) -> tuple[int, ...]:
        return _array(x).shape

    def count(self, x: Array) -> int:
        return _array(x).size

    def pointer(self, host: Array) -> int:
        try:
            return _native.address(host)
        except ValueError:  # A dtype that the buffer protocol has no word for.
            return int(host.__array_interface__["data"][0])

    def readable(self, x: Array) -> Array:
        return numpy.asarray(_array(x), order="C")

    def writable(self, x: Array) -> Array:
        if not isinstance(x, numpy.ndarray) or not x.flags.writeable:
            raise InvalidArgumentError("out has to be a writable numpy array")
        return x if x.flags.c_contiguous else numpy.empty(x.shape, x.dtype)

    def empty(self, shape: Sequence[int], like: Array) -> Array:
        return numpy.empty(shape, _array(like).dtype)

    def of_memory(self, memory: memoryview, shape: Sequence[int], like: Array) -> Array:
        host: Array = numpy.ndarray(shape, _array(like).dtype, memory)
        return host

    def assign(self, target: Array, host: Array) -> None:
        numpy.copyto(target, host)

    def home(self, host: Array, like: Array) -> Array:  # noqa: ARG002
        return host


def empty(shape: int | Sequence[int], dtype: DTypeLike = numpy.float64) -> Array:
    """Returns a zero-filled array in memory that this host's ranks share: verbs need no copy.

    It stays valid after corro.shutdown().
    """
    kind = numpy.dtype(dtype)
    dims = _arguments.shape(shape)
    count = int(numpy.prod(dims, dtype=numpy.int64))
    memory = _context.current().engine.alloc(max(1, count * kind.itemsize))
    return numpy.frombuffer(memory, dtype=kind, count=count).reshape(dims)


_verbs = Verbs(_Numpy())

allreduce, allreduce_async = _verbs.run_allreduce, _verbs.start_allreduce
grouped_allreduce = running(_verbs.grouped_allreduce)
grouped_allreduce_async = starting(_verbs.grouped_allreduce)
grouped_allgather = running(_verbs.grouped_allgather)
grouped_allgather_async = starting(_verbs.grouped_allgather)
grouped_reducescatter = running(_verbs.grouped_reducescatter)
grouped_reducescatter_async = starting(_verbs.grouped_reducescatter)
allgather, allgather_async = running(_verbs.allgather), starting(_verbs.allgather)
broadcast, broadcast_async = running(_verbs.broadcast), starting(_verbs.broadcast)
reduce, reduce_async = running(_verbs.reduce), starting(_verbs.reduce)
reducescatter, reducescatter_async = running(_verbs.reducescatter), starting(_verbs.reducescatter)
alltoall, alltoall_async = running(_verbs.alltoall), starting(_verbs.alltoall)
gather, gather_async = running(_verbs.gather), starting(_verbs.gather)
scatter, scatter_async = running(_verbs.scatter), starting(_verbs.scatter)
send, send_async = running(_verbs.send), starting(_verbs.send)
recv, recv_async = running(_verbs.recv), starting(_verbs.recv)
