"""The place of one parameter's gradient in its bucket.

p.grad is the *view*. What the engine reduces lies in the bucket, in the memory order that the ranks
agree on. Mostly they are the same memory, and nothing is copied. They are not, and publish() and
fetch() copy, where

    the gradient is on a GPU           the engine reduces pinned memory of the host
    a compressor makes it smaller      the engine reduces what the compressor has made
    this parameter has another order   the view has memory of its own, with the parameter's strides

A parameter may change its order or move (Module.to()); its place in the bucket does not.

The parameter's hooks hold the slot, and Python's garbage collector does not see what hooks of
gradients hold. So the slot holds its parameter weakly, or neither would ever be freed.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from corro.errors import FailedPreconditionError, InvalidArgumentError
from corro.torch.memory_order import (
    Order,
    dense_strides,
    memory_order,
    strides_of,
    zeros_like_gradient,
)

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from corro import _native
    from corro.torch.compression import Compressor


class Slot:
    """A parameter, its gradient's view, and what of it the engine reduces."""

    __slots__ = (
        "__weakref__",
        "_staging",
        "address",
        "context",
        "flat",
        "host",
        "is_apart",
        "name",
        "native",
        "offset",
        "order",
        "parameter",
        "part",
        "view",
    )

    native: _native.BucketSet  # The engine's set that it is a part of.
    view: Tensor
    address: int  # The view's.
    host: Tensor | None  # What the engine reduces, if that is not the view.
    is_apart: bool  # The view is in memory of its own.

    def __init__(
        self,
        param: Parameter,
        name: str,
        part: int,
        flat: Tensor,
        offset: int,
        order: Order,
        staging: Tensor | None,
    ) -> None:
        """`flat`, from `offset` on: the bucket on the parameter's device."""
        self.parameter = weakref.ref(param)  # None once nobody else uses it.
        self.name = name
        self.part = part  # Its number in the engine's set.
        self.flat = flat
        self.offset = offset
        self.order = order
        self._staging = staging
        self.context: Any = None  # What the compressor needs to decompress it.
        self._make_view(param)

    @property
    def grad(self) -> Tensor | None:
        """The parameter's gradient."""
        param = self.parameter()
        return None if param is None else param.grad

    def _make_view(self, param: Parameter) -> None:
        self.is_apart = memory_order(param) != self.order
        if self.is_apart:
            self.view, self.host = zeros_like_gradient(param), self._staging
            if self.host is None:
                strides = strides_of(param.shape, self.order)
                self.host = self.flat.as_strided(param.shape, strides, self.offset)
        else:
            self.view = self.flat.as_strided(param.shape, dense_strides(param), self.offset)
            self.host = self._staging
        self.address = self.view.data_ptr()

    def restore_view(self) -> None:
        """Module.to() and its like give a parameter and its gradient, the view, other memory."""
        param = self.parameter()
        if param is None or not param.requires_grad:
            return
        if param.dtype != self.flat.dtype or param.device != self.flat.device:
            raise FailedPreconditionError(
                f"{self.name} became {param.dtype} on {param.device} after "
                "DistributedOptimizer was made; convert the model before that"
            )
        if self.view.data_ptr() != self.address:
            old = self.view
            self._make_view(param)
            self.view.copy_(old.detach())
            if param.grad is old:
                param.grad = self.view

    def copy_gradient(self) -> None:
        """Makes param.grad a view of the bucket with the same values; of zeros if it is None."""
        self.restore_view()
        grad = self.grad
        if grad is self.view:
            return
        if grad is None:
            self.view.zero_()
        else:
            dense = grad.detach().to_dense() if grad.is_sparse else grad.detach()
            self.view.copy_(dense)
        self.attach()

    def attach(self) -> None:
        """A parameter frozen since then has no gradient, so the optimizer leaves it alone."""
        self.restore_view()
        param = self.parameter()
        if param is not None:
            param.grad = self.view if param.requires_grad else None

    def detach(self) -> None:
        """The parameter has no gradient."""
        param = self.parameter()
        if param is not None:
            param.grad = None

    def publish(self, compressor: Compressor | None) -> None:
        """Brings the gradient to where the engine reduces it."""
        if compressor is not None:
            small, self.context = compressor.compress(self.view)
            assert self.host is not None
            if small.shape != self.host.shape or small.dtype != self.host.dtype:
                raise InvalidArgumentError(
                    f"compress() of the gradient of {self.name} returned {small.dtype} of shape"
                    f" {list(small.shape)}, and {self.host.dtype} of shape {list(self.host.shape)}"
                    " for another one of its shape and dtype"
                )
            self.host.copy_(small)
        elif self.host is not None:
            self.host.copy_(self.view)

    def fetch(self, compressor: Compressor | None) -> None:
        """The gradient is what the reduced one, which travelled, stands for."""
        if self.host is None:
            return
        if compressor is None:
            self.view.copy_(self.host)
        else:
            self.view.copy_(compressor.decompress(self.host, self.context))

    # -- errors -----------------------------------------------------------------------------------

    def graph_error(self) -> FailedPreconditionError:
        """Returns what to raise for a gradient that may be differentiated and has to be reduced."""
        return FailedPreconditionError(
            f"the gradient of {self.name} carries a graph, which its reduction would cut: leave"
            " create_graph=True out of the last backward() before step(), and differentiate twice"
            " by torch.autograd.grad(..., create_graph=True)"
        )

    def too_often_error(self, passes: int) -> FailedPreconditionError:
        """Returns what to raise for a gradient that came too often and cannot be reduced again."""
        return FailedPreconditionError(
            f"the gradient of {self.name} came once more before step() of the optimizer that"
            " DistributedOptimizer returned, and only a plain average can be reduced again: call"
            " that one's step(); to accumulate gradients over several backward passes, give"
            " DistributedOptimizer a larger backward_passes_per_step than"
            f" {passes}"
        )
