"""The verbs as linear maps, and autograd through them.

A map takes the tensors of all ranks to the results of all ranks. Its adjoint is made of verbs as
well: an allreduce and an alltoall go back by one of their own kind, allgather and reducescatter by
each other, a broadcast by a reduce. The backward of a map is a call of its adjoint, which is a map
again. So derivatives of every order communicate.

Ranks may have losses of different forms. Then one rank's incoming gradient is a function of x while
another's is a constant. Both ranks have to take part when the gradients are differentiated, or the
first waits for the second. So every map has an empty tensor, the *tie*, as one result more. Under
create_graph=True the map's tie is an input of its adjoint, and the adjoint's tie is the gradient of
its own inputs that are ties. By the ties each rank's graph connects the same maps, whether or not
the tensors between them require a gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from corro._calls import Call
from corro._context import Group
from corro._reduce_op import Average, ReduceOp, Sum
from corro._verbs import even_rows
from corro.errors import InvalidArgumentError
from corro.torch import verbs
from corro.torch.compression import Compressor, EngineCodec

if TYPE_CHECKING:
    from torch import Tensor

Names = Sequence[str | None]


class LinearMap(ABC):
    """A verb with all its arguments but the tensors and their names."""

    @abstractmethod
    def run(self, xs: Sequence[Tensor], names: Names) -> list[Tensor]:
        """Returns new tensors: the results of this rank."""

    @abstractmethod
    def adjoint(self, scale: float) -> LinearMap:
        """Returns the adjoint of the map that has run, times `scale`."""


def applied(
    how: LinearMap, xs: Sequence[Tensor], names: Names, *, scale: float = 1.0
) -> list[Tensor]:
    """Returns the map's results; their gradients with respect to xs are multiplied by `scale`."""
    return list(_Applied.apply(how, names, scale, 0, *xs)[1:])


class _Applied(torch.autograd.Function):
    """Its tensors are ties, as many as `ties` says, and then the map's inputs."""

    @staticmethod
    def forward(
        ctx: Any, how: LinearMap, names: Names, scale: float, ties: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ys = how.run(tensors[ties:], names)
        ctx.how, ctx.scale, ctx.ties = how, scale, ties
        tie = torch.empty(0, device="cpu")
        ctx.save_for_backward(tie)
        return tie, *ys

    @staticmethod
    def backward(ctx: Any, grad_of_tie: Tensor, *grads: Tensor) -> tuple[Tensor | None, ...]:
        adjoint, unnamed = ctx.how.adjoint(ctx.scale), [None] * len(grads)
        if torch.is_grad_enabled():  # As within create_graph=True alone.
            [tie] = ctx.saved_tensors
            own, *back = _Applied.apply(adjoint, unnamed, 1.0, 2, tie, grad_of_tie, *grads)
        else:
            own, back = None, adjoint.run(grads, unnamed)
        return (None, None, None, None, *[own] * ctx.ties, *back)


@dataclass(frozen=True, slots=True)
class Allreduce(LinearMap):
    """Its adjoint is itself, compression included."""

    op: ReduceOp
    prescale: float
    postscale: float
    group: Group
    compression: EngineCodec | Compressor | None

    def run(self, xs: Sequence[Tensor], names: Names) -> list[Tensor]:
        how: dict[str, Any] = {
            "prescale_factor": self.prescale,
            "postscale_factor": self.postscale,
            "group": self.group,
            "compression": self.compression,
        }
        if len(xs) == 1:
            return [verbs.allreduce(xs[0], self.op, names[0], **how)]
        calls = verbs.calls
        return Call.joined(
            [calls.allreduce(x, self.op, name, **how) for x, name in zip(xs, names, strict=True)]
        ).run()

    def adjoint(self, scale: float) -> LinearMap:
        _check_linear(self.op, "allreduce")
        return replace(self, postscale=self.postscale * scale)


@dataclass(frozen=True, slots=True)
class Allgather(LinearMap):
    """Of tensors whose sizes, every rank's rows of each, are known; times `factor`."""

    sizes: Sequence[Sequence[int]]
    group: Group
    factor: float = 1.0

    def run(self, xs: Sequence[Tensor], names: Names) -> list[Tensor]:
        wholes = Call.joined(
            [
                verbs.calls.allgather(x, name, sizes=sizes, group=self.group)
                for x, name, sizes in zip(xs, names, self.sizes, strict=True)
            ]
        ).run()
        return _times(self.factor, wholes)

    def adjoint(self, scale: float) -> LinearMap:
        return _SumOfRows(self.sizes, self.group, self.factor * scale)


@dataclass(frozen=True, slots=True)
class _SumOfRows(LinearMap):
    """Each rank gets its own rows of the sum over all ranks, as many as sizes says."""

    sizes: Sequence[Sequence[int]]
    group: Group
    factor: float

    def run(self, xs: Sequence[Tensor], names: Names) -> list[Tensor]:
        return Call.joined(
            [
                verbs.calls.reduce_rows(
                    x, sizes, Sum, name, postscale_factor=self.factor, group=self.group
                )
                for x, name, sizes in zip(xs, names, self.sizes, strict=True)
            ]
        ).run()

    def adjoint(self, scale: float) -> LinearMap:
        return Allgather(self.sizes, self.group, self.factor * scale)


@dataclass(slots=True)
class Reducescatter(LinearMap):
    """What goes back travels whole, without compression."""

    op: ReduceOp
    prescale: float
    postscale: float
    group: Group
    compression: EngineCodec | Compressor | None
    _rows: Sequence[int] = ()  # Dim 0 of the inputs.

    def run(self, xs: Sequence[Tensor], names: Names) -> list[Tensor]:
        self._rows = [x.shape[0] if x.dim() else 0 for x in xs]
        return verbs.calls.scattered(
            xs,
            self.op,
            names,
            prescale_factor=self.prescale,
            postscale_factor=self.postscale,
            group=self.group,
            compression=self.compression,
        ).run()

    def adjoint(self, scale: float) -> LinearMap:
        _check_linear(self.op, "reducescatter")
        factor = scale * self.prescale * self.postscale
        factor /= self.group.size() if self.op == Average else 1
        sizes = [even_rows(rows, self.group.size()) for rows in self._rows]
        return Allgather(sizes, self.group, factor)


@dataclass(frozen=True, slots=True)
class Broadcast(LinearMap):
    """Of one tensor; times `factor`."""

    root_rank: int
    group: Group
    factor: float = 1.0

    def run(self, xs: Sequence[Tensor], names: Names) -> list[Tensor]:
        got = verbs.broadcast(xs[0], self.root_rank, names[0], group=self.group)
        return _times(self.factor, [got])

    def adjoint(self, scale: float) -> LinearMap:
        return _SumOnRoot(self.root_rank, self.group, self.factor * scale)


@dataclass(frozen=True, slots=True)
class _SumOnRoot(LinearMap):
    """A reduce of one tensor; the other ranks get zeros."""

    root_rank: int
    group: Group
    factor: float

    def run(self, xs: Sequence[Tensor], names: Names) -> list[Tensor]:
        total = verbs.reduce(xs[0], self.root_rank, Sum, names[0], group=self.group)
        return [torch.zeros_like(xs[0])] if total is None else _times(self.factor, [total])

    def adjoint(self, scale: float) -> LinearMap:
        return Broadcast(self.root_rank, self.group, self.factor * scale)


@dataclass(slots=True)
class Alltoall(LinearMap):
    """Of one tensor. What came goes back to where it came from."""

    splits: Sequence[int] | None
    group: Group
    factor: float = 1.0
    received: Sequence[int] = ()  # How many rows came from each rank.

    def run(self, xs: Sequence[Tensor], names: Names) -> list[Tensor]:
        out, self.received = verbs.alltoall(xs[0], self.splits, names[0], group=self.group)
        return _times(self.factor, [out])

    def adjoint(self, scale: float) -> LinearMap:
        return Alltoall(self.received, self.group, self.factor * scale)


def _check_linear(op: ReduceOp, verb: str) -> None:
    if op not in (Sum, Average):
        raise InvalidArgumentError(f"{verb}: only Sum and Average have a gradient, not {op.name}")


def _times(factor: float, fresh: list[Tensor]) -> list[Tensor]:
    """Multiplies new tensors in place."""
    return fresh if factor == 1.0 else [each.mul_(factor) for each in fresh]
