"""Adasum of what steps have changed, for optimizers of tf.compat.v1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from corro.tensorflow.ops import unconverted
from horovod.tensorflow.local_aggregation import local_zeros
from horovod.tensorflow.mpi_ops import Adasum, grouped_allreduce
from horovod.tensorflow.wrapped_optimizer import WrappedOptimizer


class AdasumOptimizer(WrappedOptimizer):
    """Another optimizer, which steps on its own; then the ranks' changes are combined by Adasum.

    So momentum and the like see this rank's gradients alone.

    Args:
        optimizer: applies this rank's gradients.
        name: of the new one.
        use_locking: as tf.compat.v1.train.Optimizer takes it.
        device_dense: where changes are reduced.
        compression: what they travel as.
        passes: after how many steps of the optimizer they are.
    """

    def __init__(
        self,
        optimizer: Any,
        name: str | None,
        use_locking: bool,
        device_dense: str,
        compression: Any,
        passes: int,
    ) -> None:
        made = name or f"DistributedDelta{type(optimizer).__name__}"
        super().__init__(optimizer, made, use_locking)
        self._device_dense = device_dense
        self._compression = compression
        self._passes = passes
        self._counter: Any = None  # Steps since the ranks were alike.
        self._starts: list[Any] = []  # Of the variables, when they were.

    @unconverted
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any
    ) -> Any:
        """Applies this rank's gradients, and then, if it is time, what all ranks have changed."""
        pairs = list(grads_and_vars)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        self._make_starts(variables)
        with tf.control_dependencies([one for one, _ in pairs if one is not None]):
            begun = tf.cond(
                tf.equal(self._counter, 0),
                lambda: _assigned(self._starts, variables),
                lambda: tf.constant(False),
            )
        with tf.control_dependencies([begun]):
            stepped = self._optimizer.apply_gradients(pairs, *args, **kwargs)
        with tf.control_dependencies([] if stepped is None else [stepped]):
            counted = self._counter.assign_add(1)
        with tf.control_dependencies([counted]):
            return tf.group(
                tf.cond(
                    tf.equal(self._counter, self._passes),
                    lambda: self._combined(variables),
                    lambda: tf.constant(False),
                )
            )

    def _combined(self, variables: Sequence[Any]) -> Any:
        starts = [start.read_value() for start in self._starts]
        changes = [
            tf.convert_to_tensor(variable) - start
            for variable, start in zip(variables, starts, strict=True)
        ]
        changes = grouped_allreduce(
            changes, device_dense=self._device_dense, compression=self._compression, op=Adasum
        )
        ends = [start + change for start, change in zip(starts, changes, strict=True)]
        with tf.control_dependencies([_assigned(variables, ends), self._counter.assign(0)]):
            return tf.constant(True)

    def _make_starts(self, variables: Sequence[Any]) -> None:
        if self._counter is None:
            self._counter = local_zeros([], tf.int64)
            self._starts = [local_zeros(one.shape, one.dtype.base_dtype) for one in variables]


def _assigned(variables: Sequence[Any], values: Sequence[Any]) -> Any:
    done = [variable.assign(value) for variable, value in zip(variables, values, strict=True)]
    with tf.control_dependencies(done):
        return tf.constant(True)
