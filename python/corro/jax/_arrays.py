"""JAX's arrays as the engine reads them: in CPU memory, without a copy, and back.

Traced arrays, which a compiled function will have when it runs, are not here.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy

from corro._host_arrays import Array, HostArrays
from corro.errors import InvalidArgumentError

_frontend = HostArrays()


def host(x: Any, verb: str) -> Array:
    """Returns what is in the array, to be read only; blocks until that is computed."""
    if isinstance(x, jax.core.Tracer):
        raise InvalidArgumentError(
            f"corro.jax.{verb}: this array has no value yet, but is a part of a function that JAX"
            " compiles or differentiates: only verbs that wait for their result can be used there"
        )
    if isinstance(x, jax.Array):
        _check_device(x, verb)
    return numpy.asarray(x)


def _check_device(x: jax.Array, verb: str) -> None:
    for device in x.devices():
        if device.platform != "cpu":
            raise InvalidArgumentError(
                f"corro.jax.{verb}: works on arrays in CPU memory, and this one is on {device}:"
                " jax.device_put(x, jax.devices('cpu')[0])"
            )


def home(x: Array) -> jax.Array:
    """Returns a host array that nobody else has as one of JAX's."""
    return jax.device_put(x, jax.local_devices(backend="cpu")[0])


def dtype_of(dtype: Any) -> int | None:
    """Returns the engine's number of a dtype; None if it has none."""
    return _frontend.dtype(numpy.empty(0, dtype))
