"""DistributedOptimizer: corro's, with Horovod's arguments, checks and warnings."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import torch

import corro
import corro.torch
from corro.torch.delta_optimizer import DeltaOptimizerBase
from corro.torch.reducer import Rules
from corro.torch.wrapped import like_torchs
from horovod.common.exceptions import raise_as_horovods, raised_as_horovods
from horovod.common.process_sets import ProcessSet, global_process_set, member_group
from horovod.common.reduce_op import Average, corros, known
from horovod.common.settings import bucket_bytes
from horovod.torch.compression import Compression

if TYPE_CHECKING:
    from torch.nn import Parameter


def DistributedOptimizer(  # noqa: N802  # A class to its users.
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Parameter]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Parameter]] | None = None,
    sparse_as_dense: bool = False,  # noqa: ARG001  # Gradients travel so in any case.
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Makes the optimizer's step() use all ranks' gradients, and returns the optimizer.

    The arguments are Horovod's. What differs is in docs/migrating-from-horovod.md.
    """
    reduction = corros(known(op))
    if gradient_predivide_factor != 1.0 and reduction != corro.Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed",
            DeprecationWarning,
            stacklevel=2,
        )
        groups = num_groups if groups is None else groups
    _check_groups(groups)
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    named = _named(optimizer, named_parameters)
    with raised_as_horovods():
        wrapped: Any = corro.torch.DistributedOptimizer(
            optimizer,
            named,
            compression,
            backward_passes_per_step,
            reduction,
            gradient_predivide_factor,
            groups or None,
            _group_of(process_set),
            bucket_bytes=bucket_bytes(os.environ),
        )
    own = type(wrapped)
    adds = _DeltasAsHorovods if isinstance(wrapped, DeltaOptimizerBase) else _AsHorovods
    wrapped.__class__ = type(own.__name__, (adds, own), {"__module__": own.__module__})
    wrapped._parameter_names = {param: name for name, param in named}
    wrapped._skips = False
    wrapped._added |= {"_parameter_names", "_skips"}
    if not isinstance(wrapped, DeltaOptimizerBase):
        wrapped._set_rules(
            Rules(refuses_more=_more_passes, raise_as=raise_as_horovods, absent_are_zeros=True)
        )
    return wrapped


def _more_passes(name: str) -> AssertionError:
    return AssertionError(
        "Gradients were computed more than backward_passes_per_step times before step(): that of"
        f" {name}. Give DistributedOptimizer a larger backward_passes_per_step to add them up here."
    )


class _AsHorovods(torch.optim.Optimizer):
    """What Horovod checks, and says, on top."""

    _skips: bool
    _synchronized: bool
    _in_flight: Callable[[], bool]

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it step() does not reduce: synchronize() has."""
        self._skips = True
        try:
            with super().skip_synchronize():  # type: ignore[misc]
                yield
        finally:
            self._skips = False

    @like_torchs
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Reduces the gradients, unless told not to, and lets the optimizer use them."""
        if self._synchronized and not self._skips:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after "
                "optimizer.synchronize(). This can cause training slowdown. You may want to "
                "consider using optimizer.skip_synchronize() context if you use "
                "optimizer.synchronize() in your code.",
                stacklevel=2,
            )
        with raised_as_horovods():
            return super().step(closure)

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Zeroes the gradients."""
        if self._in_flight():
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(). This is prohibited as it can cause "
                "a race condition."
            )
        super().zero_grad(*args, **kwargs)


class _DeltasAsHorovods(torch.optim.Optimizer):
    """The same for op=Adasum."""

    @like_torchs
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Lets the optimizer step, and reduces what that changed."""
        with raised_as_horovods():
            return super().step(closure)

    def skip_synchronize(self) -> NoReturn:
        """Always raises AssertionError: it is step() that reduces."""
        raise AssertionError("skip_synchronize: with op=hvd.Adasum it is step() that reduces")


def _group_of(process_set: ProcessSet) -> corro.Group:
    """On a rank outside of the set the optimizer is alone."""
    if process_set.included() is False:
        return corro.new_group([corro.rank()])
    return member_group(process_set, "DistributedOptimizer")


def _check_groups(groups: Any) -> None:
    if groups is None:
        return
    if isinstance(groups, bool) or not isinstance(groups, int | list):
        raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable")
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError("groups should be a non-negative integer")
        return
    members = [param for group in groups for param in group]
    if not all(isinstance(param, torch.Tensor) for param in members):
        raise ValueError("groups should consist of torch.Tensor")
    if len({id(param) for param in members}) != len(members):
        raise ValueError("a parameter can appear only once in groups")


def _named(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, Parameter]] | None
) -> list[tuple[str, Parameter]]:
    if named_parameters is not None:
        named = list(named_parameters)
        if named:
            return named
    return [
        (f"allreduce.noname.{i}.{j}", param)
        for i, group in enumerate(optimizer.param_groups)
        for j, param in enumerate(group["params"])
    ]
