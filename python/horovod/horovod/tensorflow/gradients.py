"""What makes a rank's gradients those of all ranks: for the tape, and for optimizers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from corro.tensorflow import ops
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import Average, grouped_allreduce, size_op


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How gradients are reduced; ValueError for what does not fit together.

    Attributes:
        device_dense: where dense gradients are reduced.
        device_sparse: where sparse ones are.
        compression: what gradients travel as.
        sparse_as_dense: makes tf.IndexedSlices tensors first.
        op: how ranks' gradients become one.
        gradient_predivide_factor: an average is divided by it before the sum, and by the rest
            after.
        groups: which gradients are reduced as one unit: how many units, or lists of variables; each
            variable in no list is one. None: whatever is fastest.
        process_set: the ranks that take part; those outside keep their gradients.
        scale_local_gradients: gradients that are not reduced are divided by the number of ranks.
    """

    device_dense: str = ""
    device_sparse: str = ""
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    op: Any = Average
    gradient_predivide_factor: float = 1.0
    groups: int | list[list[Any]] | None = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True

    def __post_init__(self) -> None:
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if self.groups is not None and not isinstance(self.groups, list) and self.groups <= 0:
            raise ValueError(
                "groups should be a positive number, or a list of lists of tf.Variable, not"
                f" {self.groups!r}"
            )


def groups_of(num_groups: int, groups: Any) -> Any:
    """Returns `groups`, or what older scripts call `num_groups`."""
    if num_groups == 0:
        return groups
    warnings.warn(
        "Parameter `num_groups` has been replaced by `groups` and will be removed",
        DeprecationWarning,
        stacklevel=3,
    )
    return num_groups if groups is None else groups


class GradientReducer:
    """Reduces gradients, but not those of variables that are this rank's own."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._local: dict[int, Any] = {}

    def keep_local(self, variable: Any) -> None:
        """Has gradients of this variable stay this rank's own."""
        self._local[_key(variable)] = variable

    def is_local(self, variable: Any) -> bool:
        """Returns whether its gradients are this rank's own."""
        return _key(variable) in self._local

    def __call__(
        self, gradients: Sequence[Any], variables: Sequence[Any], generic_names: bool = False
    ) -> list[Any]:
        """Returns the gradients, with those of all ranks in the place of this rank's.

        Args:
            gradients: tensors, tf.IndexedSlices, and None where nothing depends on the variable.
            variables: as many, the same on every rank.
            generic_names: operations of a graph are named by their place in the list alone.
        """
        results = list(gradients)
        there = [i for i, gradient in enumerate(gradients) if gradient is not None]
        own = [i for i in there if self.is_local(variables[i])]
        if own and self.options.scale_local_gradients:
            ranks = self._ranks()
            for i in own:
                results[i] = _divided(gradients[i], ranks)
        if self.options.process_set.included() is False:
            return results
        for number, unit in enumerate(self._units(there, own, variables)):
            name = f"grad_{number}" if generic_names else None
            reduced = self._reduced([gradients[i] for i in unit], name)
            for i, one in zip(unit, reduced, strict=True):
                results[i] = one
        return results

    def _units(
        self, there: Sequence[int], own: Sequence[int], variables: Sequence[Any]
    ) -> list[list[int]]:
        """Returns the numbers of gradients that are reduced as one unit each."""
        numbers = [i for i in there if i not in own]
        groups = self.options.groups
        if not numbers:
            return []
        if isinstance(groups, list):
            return _by_lists(numbers, variables, groups)
        if groups is not None:
            return [unit for unit in split_list(numbers, groups) if unit]
        # In a graph each is reduced as soon as it is there; eager ones are there all.
        if tf.executing_eagerly() or not ops.leave_their_threads:
            return [numbers]
        return [[i] for i in numbers]

    def _reduced(self, gradients: Sequence[Any], name: str | None) -> list[Any]:
        options = self.options
        if options.sparse_as_dense:
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return grouped_allreduce(
            gradients,
            device_dense=options.device_dense,
            device_sparse=options.device_sparse,
            compression=options.compression,
            op=options.op,
            prescale_factor=1.0 / options.gradient_predivide_factor,
            postscale_factor=options.gradient_predivide_factor,
            process_set=options.process_set,
            ignore_name_scope=name is not None,
            name=name,
        )

    def _ranks(self) -> Any:
        process_set = self.options.process_set
        if process_set.included():
            return size_op(process_set.process_set_id or 0)
        return process_set.size()


def _key(variable: Any) -> int:
    """Returns what is the same for a tf.Variable and a variable of Keras around it."""
    return id(getattr(variable, "handle", variable))


def _divided(gradient: Any, by: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            _divided(gradient.values, by), gradient.indices, gradient.dense_shape
        )
    return gradient / tf.cast(by, gradient.dtype)


def _by_lists(
    numbers: Sequence[int], variables: Sequence[Any], groups: Sequence[Sequence[Any]]
) -> list[list[int]]:
    left = {_key(variables[i]): i for i in numbers}
    units = [[left.pop(_key(one)) for one in group if _key(one) in left] for group in groups]
    return [unit for unit in units if unit] + [[i] for i in left.values()]
