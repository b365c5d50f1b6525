"""DistributedOptimizer: an optimizer of Keras, with the gradients of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from horovod._keras.chosen import BACK_END
from horovod._keras.framework import is_keras_3, keras
from horovod.common import basics
from horovod.common.gradients import Options, groups_of
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_op import Average, Sum, known

_kinds: Any = import_module(f"horovod._keras.optimizers{3 if is_keras_3 else 2}")


def DistributedOptimizer(  # noqa: N802  # Its name is Horovod's.
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = BACK_END.compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes an optimizer of Keras apply the gradients of all ranks, and returns it.

    It keeps its class, its settings and its variables: saved models load without Horovod.

    Args:
        optimizer: one that no other call has been given.
        name: as Horovod takes it; nothing differs.
        op: hvd.Average or hvd.Sum.
        backward_passes_per_step: how many gradients are added up here before they are reduced and
            applied.
        average_aggregated_gradients: their sum is divided by their number.
        num_groups: what older scripts call `groups`.

    The other arguments are those of horovod.common.gradients.Options. Variables that are given to
    the optimizer's register_local_var() have this rank's own gradients.

    Raises:
        TypeError: it is no optimizer of the Keras that is used.
        ValueError: it was given before, init() was not called, or arguments do not fit together.
    """
    del name
    _check_optimizer(optimizer)
    if known(op) not in (Average, Sum):
        raise ValueError("op currently only supports Average and Sum")
    if isinstance(backward_passes_per_step, bool) or backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be > 0")
    options = Options(
        compression=compression,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups_of(num_groups, groups),
        device_dense=device_dense,
        device_sparse=device_sparse,
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    options.check_set("DistributedOptimizer")
    return _kinds.distribute(
        optimizer, BACK_END.reducer(options), backward_passes_per_step, average_aggregated_gradients
    )


def PartialDistributedOptimizer(  # noqa: N802  # Its name is Horovod's.
    optimizer: Any,
    *args: Any,
    local_layers: Any = None,
    **kwargs: Any,
) -> Any:
    """As DistributedOptimizer, but gradients of some layers stay each rank's own.

    Args:
        optimizer: as DistributedOptimizer's.
        args: as DistributedOptimizer's.
        local_layers: a layer, or several, which have been built.
        kwargs: as DistributedOptimizer's.
    """
    layer = keras.layers.Layer
    layers = [local_layers] if isinstance(local_layers, layer) else list(local_layers or [])
    if not all(isinstance(one, layer) for one in layers):
        raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    distributed = DistributedOptimizer(optimizer, *args, **kwargs)
    for one in layers:
        for variable in one.trainable_weights:
            distributed.register_local_var(variable)
    return distributed


def is_distributed(optimizer: Any) -> bool:
    """Returns whether an optimizer is one that DistributedOptimizer has returned."""
    return isinstance(optimizer, _kinds.Distributed)


def check_order(optimizer: Any) -> None:
    """Raises ValueError if a model's optimizer has a distributed one where it cannot be."""
    _kinds.check_order(optimizer)


def warn_if_nothing_reduces(model: Any) -> None:
    """Warns on rank 0 of a model that is about to train on each rank alone, as far as one can see.

    A train_step() of the user's own may reduce gradients in any way.
    """
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # Of a LossScaleOptimizer.
    if optimizer is None or is_distributed(optimizer) or is_distributed(inner):
        return
    if type(model).train_step is not keras.Model.train_step or basics.size() == 1:
        return
    if basics.rank() == 0:
        warnings.warn(
            f"horovod.keras: the model's {type(optimizer).__name__} is no DistributedOptimizer, so"
            " gradients are not averaged: each rank trains alone; compile the model with"
            " hvd.DistributedOptimizer(optimizer)",
            stacklevel=2,
        )


def _check_optimizer(optimizer: Any) -> None:
    if is_distributed(optimizer):
        raise ValueError(
            f"DistributedOptimizer: this {type(optimizer).__name__} is one already: give it an"
            " optimizer once"
        )
    if not isinstance(optimizer, _kinds.CLASSES):
        raise TypeError(
            f"DistributedOptimizer takes an optimizer of Keras {keras.__version__}, and"
            f" {optimizer!r} is none"
        )
