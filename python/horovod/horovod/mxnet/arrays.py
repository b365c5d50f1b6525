"""MXNet's arrays as numpy's: the same memory, once MXNet has done with them what it was asked to.

MXNet's DLPack is of no use here: what numpy makes of it cannot be written to, and it has no word
for bool and for the arrays that its convolutions keep in a layout of their own.
"""

from __future__ import annotations

import ctypes
from typing import Any

import mxnet as mx
import numpy
from mxnet.base import _LIB, check_call

Host = numpy.ndarray[Any, Any]


def memory_of(tensor: Any) -> Host:
    """Returns the memory of an NDArray, to read and to write, while the NDArray is there.

    Blocks until MXNet, which computes in the background, has done what reads it or writes to it.

    Raises:
        ValueError: it is no NDArray, or sparse, or not in CPU memory, or of bfloat16.
    """
    if not isinstance(tensor, mx.nd.NDArray):
        raise ValueError(f"an NDArray of MXNet is needed, not a {type(tensor).__name__}")
    if tensor.stype != "default":
        raise ValueError(f"a dense NDArray is needed, not a {tensor.stype} one: tostype('default')")
    if not tensor.context.device_type.startswith("cpu"):
        raise ValueError(
            f"an NDArray in CPU memory is needed, not one on {tensor.context}:"
            " as_in_context(mx.cpu())"
        )
    dtype = numpy.dtype(tensor.dtype)
    if dtype.names:  # MXNet's bfloat16 is a record for numpy.
        raise ValueError(f"an NDArray of {dtype.names[0]} cannot be sent: astype('float32')")
    check_call(_LIB.MXNDArrayWaitToWrite(tensor.handle))
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(tensor.handle, ctypes.byref(address)))
    size_bytes = tensor.size * dtype.itemsize
    memory = (ctypes.c_char * size_bytes).from_address(address.value) if size_bytes else bytearray()
    host: Host = numpy.ndarray(tensor.shape, dtype, memory)
    return host


def copied(tensor: Any) -> Any:
    """Returns a copy of an NDArray; what is none, as it is: memory_of() refuses it."""
    return tensor.copy() if isinstance(tensor, mx.nd.NDArray) else tensor


def new(host: Host, like: Any) -> Any:
    """Returns an NDArray with the content of an array, of like's kind and on its device."""
    made = mx.nd.array(host, like.context, host.dtype)
    return made.as_np_ndarray() if isinstance(like, mx.np.ndarray) else made
