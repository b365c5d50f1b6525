"""SyncBatchNormalization: a layer of tf.keras, whichever Keras that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from corro.tensorflow.ops import unconverted
from horovod.tensorflow.mpi_ops import Sum, grouped_allreduce


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """Batch normalization over the samples of all ranks.

    In training all ranks call it equally often; how many samples each brings may differ. Otherwise
    it is as tf.keras.layers.BatchNormalization.

    Args:
        fused: has to be False, if given.
        kwargs: those of tf.keras.layers.BatchNormalization.

    Raises:
        ValueError: `fused` is True or None.
    """

    def __init__(self, fused: bool | None = False, **kwargs: Any) -> None:
        if fused is not False:
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        if not _is_keras_3():
            kwargs["fused"] = False
        super().__init__(**kwargs)
        self.supports_jit = False  # Keras 3 would have XLA compile its models.

    @unconverted
    def _moments(self, inputs: Any, *arguments: Any, **options: Any) -> tuple[Any, Any]:
        """Returns mean and variance by channel; each Keras has arguments of its own."""
        if _is_keras_3():
            mask = options["mask"] if "mask" in options else arguments[0]
            return _moments_of_all_ranks(inputs, self._reduction_axes, mask, False)
        return _moments_of_keras_2(inputs, *arguments, **options)


def _is_keras_3() -> bool:
    return hasattr(tf.keras.layers.Layer, "stateless_call")


def _moments_of_keras_2(
    inputs: Any, reduction_axes: Sequence[int], keep_dims: bool, mask: Any = None
) -> tuple[Any, Any]:
    return _moments_of_all_ranks(inputs, reduction_axes, mask, keep_dims)


def _moments_of_all_ranks(
    x: Any, axes: Sequence[int], mask: Any, keeps_dims: bool
) -> tuple[Any, Any]:
    """Returns mean and variance over the axes; of samples that the mask has, if there is one.

    The variance is a sum of squares in a second round, and so does not suffer from cancellation.
    """
    weights = None
    if mask is None:
        own = tf.reduce_sum(x, axes, keepdims=True)
        count = tf.cast(tf.size(x) // tf.size(own), x.dtype)
    else:
        weights = tf.cast(tf.expand_dims(mask, -1), x.dtype) * tf.ones_like(x)
        own = tf.reduce_sum(weights * x, axes, keepdims=True)
        count = tf.reduce_sum(weights, axes, keepdims=True)
    total, count = grouped_allreduce([own, count], op=Sum)
    mean = total / count
    squares = tf.square(x - mean)
    if weights is not None:
        squares *= weights
    own = tf.reduce_sum(squares, axes, keepdims=True)
    variance = grouped_allreduce([own], op=Sum)[0] / count
    if keeps_dims:
        return mean, variance
    return tf.squeeze(mean, axes), tf.squeeze(variance, axes)
