"""DistributedOptimizer: an optimizer of tf.compat.v1 with the gradients of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_tape import Reduce, reducing
from horovod.tensorflow.mpi_ops import Average

_V1 = tf.compat.v1.train.Optimizer


class _DistributedOptimizer(_V1):  # type: ignore[misc,valid-type]
    """Another optimizer, with the gradients of all ranks."""

    def __init__(self, optimizer: Any, name: str | None, use_locking: bool, reduce: Reduce) -> None:
        super().__init__(
            name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking
        )
        self._optimizer = optimizer
        self._reduce = reduce

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Returns the gradients of all ranks, each with its variable."""
        own = self._optimizer.compute_gradients(*args, **kwargs)
        there = [gradient for gradient, _ in own if gradient is not None]
        reduced = iter(self._reduce(there))
        return [
            (None if gradient is None else next(reduced), variable) for gradient, variable in own
        ]

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's own."""
        return self._optimizer.apply_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's own."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's own."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's own."""
        return self._optimizer.variables(*args, **kwargs)


def DistributedOptimizer(  # noqa: N802  # Its name is Horovod's.
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns an optimizer of tf.compat.v1 whose gradients are those of all ranks.

    Args:
        optimizer: computes the own gradients and applies those of all.
        name: of the new one.
        use_locking: as tf.compat.v1.train.Optimizer takes it.
        device_dense: where dense gradients are reduced.
        device_sparse: where sparse ones are.
        compression: what gradients travel as.
        sparse_as_dense: makes tf.IndexedSlices tensors first.
        op: how ranks' gradients become one.
        process_set: the ranks that take part.

    Raises:
        NotImplementedError: the optimizer is one of Keras's, which come with horovod.keras.
    """
    if not isinstance(optimizer, _V1):
        raise NotImplementedError(
            f"DistributedOptimizer takes an optimizer of tf.compat.v1.train, and a"
            f" {type(optimizer).__name__} is none: with one of Keras, reduce the gradients in the"
            " step with DistributedGradientTape"
        )
    reduce = reducing(device_dense, device_sparse, compression, sparse_as_dense, op, process_set)
    return _DistributedOptimizer(optimizer, name, use_locking, reduce)
