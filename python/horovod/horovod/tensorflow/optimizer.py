"""DistributedOptimizer: an optimizer of tf.compat.v1 with the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import tensorflow as tf

from horovod.common.gradients import Options, groups_of
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.adasum_optimizer import AdasumOptimizer
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradients import GradientReducer
from horovod.tensorflow.local_aggregation import LocalAggregation
from horovod.tensorflow.mpi_ops import Adasum, Average
from horovod.tensorflow.wrapped_optimizer import V1, WrappedOptimizer


class _DistributedOptimizer(WrappedOptimizer):
    """Another optimizer, with the gradients of all ranks."""

    def __init__(
        self, optimizer: Any, name: str | None, use_locking: bool, reduce: GradientReducer
    ) -> None:
        super().__init__(optimizer, name or f"Distributed{type(optimizer).__name__}", use_locking)
        self._reduce = reduce

    def register_local_var(self, var: Any) -> None:
        """Has gradients of this variable stay this rank's own."""
        self._reduce.keep_local(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Returns the gradients of all ranks, each with its variable."""
        pairs = super().compute_gradients(*args, **kwargs)
        gradients, variables = [one for one, _ in pairs], [one for _, one in pairs]
        return list(zip(self._of_all_ranks(gradients, variables), variables, strict=True))

    def _of_all_ranks(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        return self._reduce(gradients, variables)


class _AggregatingOptimizer(_DistributedOptimizer):
    """As that, with a step of several backward passes."""

    def __init__(
        self,
        optimizer: Any,
        name: str | None,
        use_locking: bool,
        reduce: GradientReducer,
        passes: int,
        averages: bool,
    ) -> None:
        super().__init__(optimizer, name, use_locking, reduce)
        self._aggregation = LocalAggregation(
            passes, reduce, averages=averages, sparse_as_dense=reduce.options.sparse_as_dense
        )

    def _of_all_ranks(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        return self._aggregation.compute_gradients(gradients, variables)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Any:
        """As the optimizer's own in the last pass of a step; others count global_step alone."""
        pairs = list(grads_and_vars)
        return self._aggregation.apply_gradients(
            [gradient for gradient, _ in pairs],
            lambda: self._optimizer.apply_gradients(pairs, global_step=global_step, name=name),
            lambda: None if global_step is None else tf.compat.v1.assign_add(global_step, 1),
        )


def DistributedOptimizer(  # noqa: N802  # Its name is Horovod's.
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns an optimizer whose gradients are those of all ranks.

    For an optimizer of tf.compat.v1 it is a new one. One of Keras is itself returned, by
    horovod.keras. Gradients of what is given to its register_local_var() stay this rank's own. With
    hvd.Adasum the optimizer steps with this rank's gradients, and what it has changed is combined;
    horovod.keras has no Adasum.

    Args:
        optimizer: computes the own gradients and applies those of all.
        name: of the new one.
        use_locking: as tf.compat.v1.train.Optimizer takes it.
        backward_passes_per_step: gradients of so many calls are added up and then reduced and
            applied; the calls between change nothing.
        average_aggregated_gradients: they are divided by their number.
        num_groups: what `groups` was called before.

    The other arguments are those of horovod.common.gradients.Options.

    Raises:
        TypeError: what is given is no optimizer of either.
        ValueError: it is distributed already, init() was not called, or arguments do not fit
            together.
    """
    if not isinstance(optimizer, V1):
        of_keras: Any = import_module("horovod.keras")  # Imports Keras.
        return of_keras.DistributedOptimizer(
            optimizer,
            name,
            device_dense,
            device_sparse,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            op,
            backward_passes_per_step,
            average_aggregated_gradients,
            num_groups,
            groups,
            process_set,
            scale_local_gradients,
        )
    if isinstance(optimizer, WrappedOptimizer):
        raise ValueError(
            f"DistributedOptimizer: this {type(optimizer).__name__} is one already: give it an"
            " optimizer once"
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
    options.check_set("DistributedOptimizer")
    if op == Adasum:
        return _adasum(
            optimizer,
            name,
            use_locking,
            options,
            backward_passes_per_step,
            average_aggregated_gradients,
        )
    reduce = GradientReducer(options)
    if backward_passes_per_step == 1:
        return _DistributedOptimizer(optimizer, name, use_locking, reduce)
    return _AggregatingOptimizer(
        optimizer, name, use_locking, reduce, backward_passes_per_step, average_aggregated_gradients
    )


def _adasum(
    optimizer: Any,
    name: str | None,
    use_locking: bool,
    options: Options,
    passes: int,
    averages: bool,
) -> AdasumOptimizer:
    if averages:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    if options.process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support process sets yet")
    return AdasumOptimizer(
        optimizer, name, use_locking, options.device_dense, options.compression, passes
    )
