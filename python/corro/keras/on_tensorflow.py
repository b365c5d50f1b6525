"""A layer's two operations in TensorFlow: calls of Python, also in graphs, but not in XLA's."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from corro.keras._rows import Rows


def pulled(rows: Rows, ids: Any) -> Any:
    """Returns the rows of the ids, without a gradient."""
    found = tf.numpy_function(rows.pull, [ids], tf.float32)
    found.set_shape([*ids.shape, rows.table.dim])
    return found


def looked_up(rows: Rows, ids: Any, anchor: Any) -> Any:
    """Returns the rows of the ids; a tape puts their gradient aside."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def of_anchor(_: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            zero = tf.numpy_function(rows.put_aside, [ids, upstream], tf.float32)
            zero.set_shape([])
            return zero

        return pulled(rows, ids), gradient

    return of_anchor(anchor)
