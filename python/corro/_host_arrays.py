"""numpy's arrays behind the verbs: corro.numpy's, and what corro.jax reads its own arrays as."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy
from numpy.typing import NDArray

from corro import _native
from corro._verbs import Frontend
from corro.errors import InvalidArgumentError

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


class HostArrays(Frontend[Array]):
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
        return _native.BF16 if dtype.name == "bfloat16" else _DTYPES.get(dtype)

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
