"""What the tests under keras_ranks/ need to be the same with each Keras, and what they train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

import horovod.keras as hvd
from horovod._keras.framework import back_end, is_keras_3, keras

__all__ = ["array", "back_end", "compiled", "is_keras_3", "keras", "ones", "some_data", "step"]


def array(tensor: Any) -> Any:
    """Returns a tensor or variable as an array of numpy."""
    return keras.ops.convert_to_numpy(tensor) if is_keras_3 else numpy.asarray(tensor)


def ones(*shape: int) -> Any:
    """Returns a variable."""
    if is_keras_3:
        return keras.Variable(numpy.ones(shape, "float32"))
    import tensorflow as tf

    return tf.Variable(tf.ones(shape))


def step(optimizer: Any, variables: Sequence[Any], gradients: Sequence[Any]) -> None:
    """Has the optimizer take a step with these gradients, as far as this rank knows."""
    if is_keras_3:
        optimizer.apply([keras.ops.convert_to_tensor(one) for one in gradients], list(variables))
        return
    import tensorflow as tf

    def loss() -> Any:
        parts = [
            tf.reduce_sum(one * gradient)
            for one, gradient in zip(variables, gradients, strict=True)
        ]
        return tf.add_n(parts)

    pairs = optimizer._compute_gradients(loss, list(variables))
    optimizer.apply_gradients(pairs)


def compiled(optimizer: Any, *, is_built: bool = True, **options: Any) -> Any:
    """Returns a model whose first weights are those of its rank."""
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential(
        [keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1, name="last")]
    )
    if is_built:
        model.build((None, 8))
    model.compile(optimizer, "mse", **options)
    return model


def some_data(count: int = 64) -> tuple[Any, Any]:
    """Returns the same inputs and targets on every rank."""
    x = numpy.random.default_rng(1).random((count, 8), "float32")
    return x, x.sum(axis=1, keepdims=True)
