"""DistributedGradientTape: a tape whose gradients are those of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from corro.tensorflow import ops
from corro.tensorflow.ops import unconverted
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import Average, grouped_allreduce

Reduce = Callable[[Sequence[Any]], list[Any]]


class _Reducing:
    """Comes before a tape's own class."""

    _reduce: Reduce

    @unconverted
    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None, **options: Any
    ) -> Any:
        """Returns the gradients of all ranks for the sources, in their structure."""
        own = super().gradient(target, sources, output_gradients, **options)  # type: ignore[misc]
        flat = tf.nest.flatten(own)  # None among them: a source on which nothing depends.
        there = [gradient for gradient in flat if gradient is not None]
        reduced = iter(self._reduce(there))
        return tf.nest.pack_sequence_as(
            own, [None if gradient is None else next(reduced) for gradient in flat]
        )


@unconverted
def DistributedGradientTape(  # noqa: N802  # Its name is Horovod's.
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    process_set: ProcessSet = global_process_set,
) -> tf.GradientTape:
    """Returns a tape whose gradient() is that of all ranks; the given one is not to be used again.

    Args:
        gradtape: the tape that has recorded, or will.
        device_dense: where dense gradients are reduced.
        device_sparse: where sparse ones are.
        compression: what gradients travel as.
        sparse_as_dense: makes tf.IndexedSlices tensors first.
        op: how ranks' gradients become one.
        process_set: the ranks that take part.
    """

    kind = type(gradtape)
    distributed: Any = type(f"Distributed{kind.__name__}", (_Reducing, kind), {})
    tape = distributed.__new__(distributed)
    tape.__dict__.update(gradtape.__dict__)
    tape._reduce = reducing(
        device_dense, device_sparse, compression, sparse_as_dense, op, process_set
    )
    return tape


def reducing(
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    op: Any,
    process_set: ProcessSet,
) -> Reduce:
    """Returns what makes a rank's gradients those of all ranks.

    In a graph each is reduced as soon as it is there; eager ones are there all.
    """

    def together(gradients: Sequence[Any]) -> list[Any]:
        return grouped_allreduce(
            gradients,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            op=op,
            process_set=process_set,
        )

    def reduce(gradients: Sequence[Any]) -> list[Any]:
        if sparse_as_dense:
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        if tf.executing_eagerly() or not ops.leave_their_threads:
            return together(gradients)
        return [together([gradient])[0] for gradient in gradients]

    return reduce
