"""TensorFlow below Keras: each collective is one of corro.tensorflow's ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import tensorflow as tf

from corro.tensorflow.ops import unconverted
from horovod._keras.back_end import BackEnd, Function
from horovod.common.gradients import Options
from horovod.common.process_sets import ProcessSet
from horovod.tensorflow import mpi_ops
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import broadcast_global_variables
from horovod.tensorflow.gradients import GradientReducer

# Gradients' own names come from those of Keras's layers, which count what a process has made: on a
# rank that has loaded its model they are other ones.
_NAME = "KerasGradients"


class _Tensorflow(BackEnd):
    """Thread-safe: it has no state."""

    compression = Compression

    def tensor(self, value: Any) -> Any:
        return tf.convert_to_tensor(value)

    def reducer(self, options: Options) -> GradientReducer:
        return GradientReducer(options, _NAME)

    def allreduce(
        self, tensor: Any, name: str | None, op: Any, factors: tuple[float, float], compression: Any
    ) -> Any:
        before, after = factors
        return _now(
            mpi_ops.allreduce(
                tensor,
                name=name,
                op=op,
                prescale_factor=before,
                postscale_factor=after,
                compression=compression,
            )
        )

    def allgather(self, tensor: Any, name: str | None) -> Any:
        return _now(mpi_ops.allgather(tensor, name))

    def reducescatter(self, tensor: Any, name: str | None, op: Any) -> Any:
        return _now(mpi_ops.reducescatter(tensor, name=name, op=op))

    def broadcast(
        self, tensors: Sequence[Any], root_rank: int, name: str | None, process_set: ProcessSet
    ) -> list[Any]:
        return [
            _now(one)
            for one in mpi_ops.grouped_broadcast(tensors, root_rank, name, False, process_set)
        ]

    def broadcast_global_variables(self, root_rank: int) -> Any:
        return _now(broadcast_global_variables(root_rank))

    def elastic(self, function: Callable[..., Any]) -> Callable[..., Any]:
        of_tensorflow: Any = import_module("horovod.tensorflow.elastic")  # Knows its errors.
        return of_tensorflow.run(function)  # type: ignore[no-any-return]

    def unconverted(self, function: Function) -> Function:
        return unconverted(function)


def _now(tensor: Any) -> Any:
    """Returns the tensor, or its content where there are sessions."""
    if tf.executing_eagerly() or tf.inside_function():
        return tensor
    return tf.compat.v1.keras.backend.get_session().run(tensor)


BACK_END = _Tensorflow()
