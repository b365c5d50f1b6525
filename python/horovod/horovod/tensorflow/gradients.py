"""What makes a rank's gradients those of all ranks, on TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from corro.tensorflow import ops
from corro.tensorflow.ops import unconverted
from horovod.common import gradients as common
from horovod.common.gradients import Options
from horovod.tensorflow.mpi_ops import grouped_allreduce, size_op


class GradientReducer(common.GradientReducer):
    """Eager, in a tf.function, or in a graph of tf.compat.v1.

    Args:
        options: how they are reduced.
        name: of the operations, in front of a number; None: what is reduced says it.
    """

    def __init__(self, options: Options, name: str | None = None) -> None:
        super().__init__(options)
        self._name = name

    @unconverted
    def __call__(
        self, gradients: Sequence[Any], variables: Sequence[Any], generic_names: bool = False
    ) -> list[Any]:
        return super().__call__(gradients, variables, generic_names)

    def _reduced(self, gradients: Sequence[Any], number: int, generic_names: bool) -> list[Any]:
        options = self.options
        if options.sparse_as_dense:
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        prefix = "grad" if generic_names else self._name
        return grouped_allreduce(
            gradients,
            device_dense=options.device_dense,
            device_sparse=options.device_sparse,
            compression=options.compression,
            op=options.op,
            prescale_factor=1.0 / options.gradient_predivide_factor,
            postscale_factor=options.gradient_predivide_factor,
            process_set=options.process_set,
            ignore_name_scope=generic_names,
            name=None if prefix is None else f"{prefix}_{number}",
        )

    def _divided(self, gradient: Any, by: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            values = self._divided(gradient.values, by)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(by, gradient.dtype)

    def _ranks(self) -> Any:
        process_set = self.options.process_set
        if process_set.included():
            return size_op(process_set.process_set_id or 0)  # When it runs.
        return super()._ranks()

    def _come_together(self) -> bool:
        # In a graph each is reduced as soon as it is there; eager ones are there all.
        return tf.executing_eagerly() or not ops.leave_their_threads
