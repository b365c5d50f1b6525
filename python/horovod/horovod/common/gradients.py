"""What makes a rank's gradients those of all ranks: for tapes, and for optimizers."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from horovod.common.process_sets import ProcessSet, global_process_set, member_group
from horovod.common.reduce_op import Average, known
from horovod.common.util import split_list


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How gradients are reduced; ValueError for what does not fit together.

    Attributes:
        compression: what gradients travel as.
        device_dense: where TensorFlow reduces dense gradients.
        device_sparse: where it reduces sparse ones.
        sparse_as_dense: makes tf.IndexedSlices tensors first.
        op: how ranks' gradients become one.
        gradient_predivide_factor: an average is divided by it before the sum, and by the rest
            after.
        groups: which gradients are reduced as one unit: how many units, or lists of variables; each
            variable in no list is one. None: whatever is fastest.
        process_set: the ranks that take part; those outside keep their gradients.
        scale_local_gradients: gradients that are not reduced are divided by the number of ranks.
    """

    compression: Any
    device_dense: str = ""
    device_sparse: str = ""
    sparse_as_dense: bool = False
    op: Any = Average
    gradient_predivide_factor: float = 1.0
    groups: int | list[list[Any]] | None = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True

    def __post_init__(self) -> None:
        if self.gradient_predivide_factor != 1.0 and known(self.op) != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if self.groups is not None and not isinstance(self.groups, list) and self.groups <= 0:
            raise ValueError(
                "groups should be a positive number, or a list of lists of tf.Variable, not"
                f" {self.groups!r}"
            )

    def takes_part(self) -> bool:
        """Returns whether this rank's gradients are reduced with others'."""
        return self.process_set.included() is not False

    def check_set(self, user: str) -> None:
        """Raises ValueError, which may name the user, before init(), and for a set that is none."""
        if self.takes_part():
            member_group(self.process_set, user)


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


class GradientReducer(ABC):
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
                results[i] = self._divided(gradients[i], ranks)
        if not self.options.takes_part():
            return results
        for number, unit in enumerate(self._units(there, own, variables)):
            reduced = self._reduced([gradients[i] for i in unit], number, generic_names)
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
        return [numbers] if self._come_together() else [[i] for i in numbers]

    @abstractmethod
    def _reduced(self, gradients: Sequence[Any], number: int, generic_names: bool) -> list[Any]:
        """Returns the gradients of all ranks for those of a unit, which has a number."""

    @abstractmethod
    def _divided(self, gradient: Any, by: Any) -> Any:
        """Returns a gradient, divided by a number."""

    def _ranks(self) -> Any:
        """Returns how many take part."""
        return self.options.process_set.size()

    def _come_together(self) -> bool:
        """Returns whether all gradients are there before the first one is reduced."""
        return True


def _key(variable: Any) -> int:
    """Returns what is the same for a tf.Variable and a variable of Keras around it."""
    return id(getattr(variable, "handle", variable))


def _by_lists(
    numbers: Sequence[int], variables: Sequence[Any], groups: Sequence[Sequence[Any]]
) -> list[list[int]]:
    left = {_key(variables[i]): i for i in numbers}
    units = [[left.pop(_key(one)) for one in group if _key(one) in left] for group in groups]
    return [unit for unit in units if unit] + [[i] for i in left.values()]
