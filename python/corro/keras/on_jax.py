"""A layer's two operations in JAX: calls of Python, also in compiled functions."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy
from jax.experimental import io_callback

from corro.keras._rows import Rows


def pulled(rows: Rows, ids: Any) -> Any:
    """Returns the rows of the ids, without a gradient."""
    shape = jax.ShapeDtypeStruct((*ids.shape, rows.table.dim), numpy.float32)
    return jax.pure_callback(rows.pull, shape, jax.lax.stop_gradient(ids))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def looked_up(rows: Rows, ids: Any, anchor: Any) -> Any:
    """Returns the rows of the ids; grad() puts their gradient aside."""
    del anchor
    return pulled(rows, ids)


def _forward(rows: Rows, ids: Any, anchor: Any) -> Any:
    return looked_up(rows, ids, anchor), ids


def _backward(rows: Rows, ids: Any, upstream: Any) -> Any:
    zero = jax.ShapeDtypeStruct((), numpy.float32)
    no_gradient = numpy.zeros(ids.shape, jax.dtypes.float0)
    return no_gradient, io_callback(rows.put_aside, zero, ids, upstream)


looked_up.defvjp(_forward, _backward)
