"""What DistributedOptimizer(op=Adasum) makes: ranks step by themselves, and the steps are reduced.

A step takes the parameters from a start, the same on all ranks, along a delta of this rank's own:
learning rate, momentum and all else that the optimizer does are in it. The deltas are reduced by
Adasum, and every rank goes on from the start plus the result.

Source: Maleki et al., "Scaling Distributed Training with Adaptive Summation" (MLSys 2021, arXiv
2006.02924), section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from corro._reduce_op import Adasum
from corro.errors import CorroError, FailedPreconditionError, InvalidArgumentError
from corro.torch import verbs
from corro.torch.wrapped import WrappedOptimizer, like_torchs

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from corro._calls import Handle
    from corro.torch.compression import Compressor, EngineCodec


class DeltaOptimizerBase(WrappedOptimizer):
    """What is added to an optimizer's class."""

    _compression: EngineCodec | Compressor
    _names: Mapping[torch.Tensor, str]

    @staticmethod
    def attributes(
        compression: EngineCodec | Compressor, names: Mapping[torch.Tensor, str]
    ) -> dict[str, Any]:
        """Returns what an optimizer of this class needs."""
        return {"_compression": compression, "_names": names}

    @like_torchs
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Lets the optimizer use this rank's gradients, and reduces what that changed.

        Blocks until all ranks have called it. If the reduction fails, the parameters are as before.

        Returns:
            What the closure said on this rank; None without one.
        """
        self._begin_step()
        params = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        starts = [param.detach().clone() for param in params]
        loss = self._step_plain() if closure is None else self._step_plain(closure)
        with torch.no_grad():
            self._reduce(params, starts)
        return loss

    def synchronize(self) -> None:
        """Does nothing: before step() there is nothing to reduce."""

    def skip_synchronize(self) -> NoReturn:
        """Always raises FailedPreconditionError: it is step() that reduces."""
        raise FailedPreconditionError("skip_synchronize: with op=Adasum it is step() that reduces")

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes nothing: gradients add up until step(), however often backward() runs."""
        if passes < 1:
            raise InvalidArgumentError(
                f"backward_passes_per_step has to be at least 1, not {passes}"
            )

    def _reduce(self, params: Sequence[Parameter], starts: Sequence[Tensor]) -> None:
        """Every parameter = its start + Adasum of (parameter - start)."""
        for param, start in zip(params, starts, strict=True):
            param.sub_(start)
        try:
            self._allreduce(params)
        except BaseException:
            for param, start in zip(params, starts, strict=True):
                param.copy_(start)
            raise
        for param, start in zip(params, starts, strict=True):
            param.add_(start)

    def _allreduce(self, params: Sequence[Parameter]) -> None:
        """In place, each by its name."""
        options: dict[str, Any] = {"group": self._group, "compression": self._compression}
        handles: list[Handle[Tensor]] = []
        try:
            for i, param in enumerate(params):
                name = self._names.get(param, f"added parameter {i}")
                handles.append(verbs.allreduce_async_(param.detach(), Adasum, name, **options))
        finally:
            _wait_for_all(handles)


def _wait_for_all(handles: Sequence[Handle[Tensor]]) -> None:
    """Waits also after a failure: until an operation is over the engine writes to its tensor."""
    failures: list[CorroError] = []
    for handle in handles:
        try:
            handle.wait()
        except CorroError as failure:
            failures.append(failure)
    if failures:
        raise failures[0]
