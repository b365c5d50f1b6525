"""DistributedGradientTape: a tape whose gradients are those of all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from corro.tensorflow.ops import unconverted
from horovod.common.gradients import Options, groups_of
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradients import GradientReducer
from horovod.tensorflow.mpi_ops import Average


class _Reducing:
    """Comes before a tape's own class."""

    _reduce: GradientReducer
    _local_layers: list[Any]

    def register_local_source(self, source: Any) -> None:
        """Has gradients for this source stay this rank's own."""
        self._reduce.keep_local(source)

    @unconverted
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **options: Any,
    ) -> Any:
        """Returns the gradients of all ranks for the sources, in their structure."""
        own = super().gradient(target, sources, output_gradients, **options)  # type: ignore[misc]
        # Layers may have got their weights only now, while the tape has recorded.
        for layer in self._local_layers:
            for weight in layer.trainable_weights:
                self.register_local_source(weight)
        reduced = self._reduce(tf.nest.flatten(own), tf.nest.flatten(sources), use_generic_names)
        return tf.nest.pack_sequence_as(own, reduced)

    @unconverted
    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Returns pairs of source and gradient: of this rank's own sources, and of the others."""
        gradients = self.gradient(target, sources, output_gradients, use_generic_names)
        pairs: tuple[list[Any], list[Any]] = ([], [])
        for source, gradient in zip(
            tf.nest.flatten(sources), tf.nest.flatten(gradients), strict=True
        ):
            pairs[0 if self._reduce.is_local(source) else 1].append((source, gradient))
        return pairs


@unconverted
def DistributedGradientTape(  # noqa: N802  # Its name is Horovod's.
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a tape whose gradient() is that of all ranks; the given one is not to be used again.

    Gradients of what is given to its register_local_source() stay this rank's own.

    Args:
        gradtape: the tape that has recorded, or will.
        num_groups: what `groups` was called before.

    The other arguments are those of horovod.common.gradients.Options.

    Raises:
        ValueError: it is distributed already, init() was not called, or arguments do not fit
            together.
    """
    if isinstance(gradtape, _Reducing):
        raise ValueError(
            "DistributedGradientTape: this tape is one already: give it a tf.GradientTape once"
        )
    options = Options(
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups_of(num_groups, groups),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    options.check_set("DistributedGradientTape")
    kind = type(gradtape)
    distributed: Any = type(f"Distributed{kind.__name__}", (_Reducing, kind), {})
    tape = distributed.__new__(distributed)
    tape.__dict__.update(gradtape.__dict__)
    tape._local_layers = []
    tape._reduce = GradientReducer(options)
    return tape


@unconverted
def PartialDistributedGradientTape(  # noqa: N802  # Its name is Horovod's.
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a DistributedGradientTape that leaves the gradients of some layers alone.

    Args:
        gradtape: the tape that has recorded, or will.
        local_layers: a layer of Keras, or several, whose weights are this rank's own.

    The other arguments are DistributedGradientTape's.

    Raises:
        ValueError: as DistributedGradientTape, or what is no layer is among `local_layers`.
    """
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    tape._local_layers = _layers(local_layers)
    return tape


def _layers(given: Any) -> list[Any]:
    """Returns the layers: one, several, or none is given."""
    several = isinstance(given, Iterable) and not hasattr(given, "trainable_weights")
    layers = [] if given is None else list(given) if several else [given]
    for layer in layers:  # Of one Keras or of the other.
        if not hasattr(layer, "trainable_weights"):
            raise ValueError(
                "All local layers must be of tf.keras.layers.Layer type, not"
                f" {type(layer).__name__}"
            )
    return layers
