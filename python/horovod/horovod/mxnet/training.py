"""Gradients that are averaged over all ranks before they change the weights.

They are summed; the optimizer, which multiplies them by `rescale_grad` anyway, divides the sum.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import mxnet as mx

from horovod.common.handles import synchronize
from horovod.common.operations import Reduction
from horovod.common.process_sets import ProcessSet, global_process_set, member_group
from horovod.common.reduce_op import Sum
from horovod.common.util import split_list
from horovod.mxnet.compression import Compression
from horovod.mxnet.mpi_ops import start_allreduce_, start_grouped_allreduce_


class _Sums:
    """How gradients are summed. Immutable."""

    def __init__(self, predivide: float, groups: int, process_set: ProcessSet) -> None:
        self.scale = predivide / member_group(process_set, "allreduce").size()
        self._reduction = Reduction(Sum, 1.0 / predivide, 1.0, process_set)
        self._groups = groups
        self._process_set = process_set

    def sum_(self, gradients: Sequence[Any], names: Sequence[str]) -> None:
        """Sums gradients in place, all at once, each of a name. Blocks."""
        how = self._reduction, self._process_set
        if self._groups > 0:
            parts = split_list(list(zip(gradients, names, strict=True)), self._groups)
            started = [
                start_grouped_allreduce_(
                    [one for one, _ in part], f"{part[0][1]}:{len(part)}", *how
                )
                for part in parts
                if part
            ]
        else:
            started = [
                start_allreduce_(one, name, *how)
                for one, name in zip(gradients, names, strict=True)
            ]
        for handle in started:
            synchronize(handle)


class DistributedOptimizer(mx.optimizer.Optimizer):  # type: ignore[misc]  # MXNet has no types.
    """The optimizer, which sums gradients over all ranks before each update, and is otherwise it.

    Its own attributes are the optimizer's, to read and to set; `rescale_grad` has been divided by
    the number of ranks.
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        sums = _Sums(gradient_predivide_factor, num_groups, process_set)
        optimizer.rescale_grad *= sums.scale
        self.__dict__.update(_optimizer=optimizer, _sums=sums)

    def __getattr__(self, name: str) -> Any:
        if name in ("_optimizer", "_sums"):
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._optimizer, name, value)

    def __reduce__(self) -> Any:
        """Refuses to be saved: what is loaded would have the process set of another job."""
        raise TypeError("a DistributedOptimizer cannot be saved; a DistributedTrainer's states can")

    def create_state(self, index: Any, weight: Any) -> Any:
        """Returns the optimizer's."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """Returns the optimizer's."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Sums the gradients and updates the weights; lists, or one of each."""
        self._sum_(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Sums the gradients and updates the weights, of which there may be float32 copies."""
        self._sum_(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def _sum_(self, index: Any, grad: Any) -> None:
        if isinstance(index, tuple | list):
            self._sums.sum_(grad, [str(one) for one in index])
        else:
            self._sums.sum_([grad], [str(index)])


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc]
    """gluon's trainer, whose step() averages gradients over all ranks.

    Args:
        params: `net.collect_params()`, or a list of Parameters; the same on every rank.
        optimizer: an optimizer or its name.
        optimizer_params: the optimizer's arguments.
        compression: what gradients travel as.
        gradient_predivide_factor: gradients are divided by it before they are summed, and the sum
            by the rest of the number of ranks.
        prefix: stands before gradients' names: trainers that step at a time need different ones.
        num_groups: gradients travel in so many groups, each as one unit; 0: as they are ready.
        process_set: the ranks that take part.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        sums = _Sums(gradient_predivide_factor, num_groups, process_set)
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer averages itself: it takes the optimizer that the"
                " DistributedOptimizer has been made of",
                stacklevel=2,
            )
            optimizer.rescale_grad /= optimizer._sums.scale
            optimizer = optimizer._optimizer
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        self._scale *= sums.scale
        self._sums = sums
        self._compression = compression
        self._prefix = prefix or ""

    def _allreduce_grads(self) -> None:
        """What gluon's step() and allreduce_grads() call."""
        gradients = {
            f"{self._prefix}{i}": parameter.list_grad()[0]
            for i, parameter in enumerate(self._params)
            if parameter.grad_req != "null"
        }
        small = [self._compression.compress(gradient) for gradient in gradients.values()]
        self._sums.sum_([tensor for tensor, _ in small], list(gradients))
        for gradient, (tensor, context) in zip(gradients.values(), small, strict=True):
            if tensor is not gradient:
                gradient[:] = self._compression.decompress(tensor, context)
