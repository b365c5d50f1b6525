"""The verbs that autograd goes through: the backward of each is a verb.

    y = corro.allreduce(model(x), corro.Sum)
    loss(y).backward()

What is differentiated is the sum of all ranks' losses, as in torch.distributed.nn: every rank of
the group runs backward() through its result, in the same order. A front end whose users expect
another sum scales gradients by `scale`.

Without an input that requires a gradient, or with `out`, a verb is as in corro.torch.verbs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch

from corro._calls import Call
from corro._context import Group, world_or
from corro._reduce_op import Average, ReduceOp, Sum
from corro.errors import InvalidArgumentError
from corro.torch import verbs
from corro.torch.compression import Compressor, EngineCodec

if TYPE_CHECKING:
    from torch import Tensor


def _check_linear(op: ReduceOp, verb: str) -> None:
    if op not in (Sum, Average):
        raise InvalidArgumentError(f"{verb}: only Sum and Average have a gradient, not {op.name}")


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        op: ReduceOp,
        names: Sequence[str | None],
        factors: tuple[float, float],
        group: Group | None,
        compression: EngineCodec | Compressor | None,
        *xs: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.op, ctx.how = op, (factors, group, compression)
        return _Allreduce.reduce(xs, op, names, *ctx.how)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        _check_linear(ctx.op, "allreduce")
        reduced = _Allreduce.reduce(grads, ctx.op, [None] * len(grads), *ctx.how)
        return (None, None, None, None, None, *reduced)

    @staticmethod
    def reduce(
        xs: Sequence[Tensor],
        op: ReduceOp,
        names: Sequence[str | None],
        factors: tuple[float, float],
        group: Group | None,
        compression: EngineCodec | Compressor | None,
    ) -> tuple[Tensor, ...]:
        calls = [
            verbs.calls.allreduce(
                x,
                op,
                name,
                prescale_factor=factors[0],
                postscale_factor=factors[1],
                group=group,
                compression=compression,
            )
            for x, name in zip(xs, names, strict=True)
        ]
        return tuple(Call.joined(calls).run())


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        name: str | None,
        sizes: Sequence[int] | None,
        group: Group | None,
        scale: float,
    ) -> Tensor:
        group = world_or(group)
        if sizes is None:
            sizes = verbs.calls.rows_of(group, x, "allgather", name)
        ctx.sizes, ctx.group, ctx.scale = list(sizes), group, scale
        return verbs.allgather(x, name, sizes=sizes, group=group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        first, own = sum(ctx.sizes[: ctx.group.rank()]), ctx.sizes[ctx.group.rank()]
        total = verbs.allreduce(grad, Sum, postscale_factor=ctx.scale, group=ctx.group)
        return total.narrow(0, first, own), None, None, None, None


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, root_rank: int, name: str | None, group: Group | None, scale: float
    ) -> Tensor:
        ctx.root_rank, ctx.group, ctx.scale = root_rank, world_or(group), scale
        return verbs.broadcast(x, root_rank, name, group=group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        total = verbs.reduce(grad, ctx.root_rank, Sum, group=ctx.group)
        mine = torch.zeros_like(grad) if total is None else total.mul_(ctx.scale)
        return mine, None, None, None, None


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        op: ReduceOp,
        name: str | None,
        factors: tuple[float, float],
        group: Group | None,
        scale: float,
    ) -> Tensor:
        ctx.op, ctx.group = op, world_or(group)
        ctx.scale = scale * factors[0] * factors[1] / (ctx.group.size() if op == Average else 1)
        ctx.rows = x.shape[0] if x.dim() else 0
        return verbs.reducescatter(
            x, op, name, prescale_factor=factors[0], postscale_factor=factors[1], group=group
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _check_linear(ctx.op, "reducescatter")
        size = ctx.group.size()
        sizes = [ctx.rows // size + (i < ctx.rows % size) for i in range(size)]
        whole = verbs.allgather(grad, sizes=sizes, group=ctx.group)
        return whole.mul_(ctx.scale), None, None, None, None, None


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        splits: Sequence[int] | None,
        name: str | None,
        group: Group | None,
    ) -> tuple[Tensor, list[int]]:
        out, received = verbs.alltoall(x, splits, name, group=group)
        ctx.received, ctx.group = received, group
        return out, received

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: object) -> tuple[Tensor | None, ...]:
        back, _ = verbs.alltoall(grad, ctx.received, group=ctx.group)
        return back, None, None, None


P = ParamSpec("P")
R = TypeVar("R")


def _differentiable(plain: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Calls `plain` unless its first argument has an input that requires a gradient."""

    def of(through: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(plain)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if args and _requires_grad(args[0]) and kwargs.get("out") is None:
                return through(*args, **kwargs)
            return plain(*args, **kwargs)

        return call

    return of


def _requires_grad(x: Any) -> bool:
    if isinstance(x, torch.Tensor):
        return x.requires_grad and torch.is_grad_enabled()
    return isinstance(x, list | tuple) and any(map(_requires_grad, x))


@_differentiable(verbs.allreduce)
def allreduce(
    x: Tensor,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    out: Tensor | None = None,  # noqa: ARG001  # There is none.
    group: Group | None = None,
    compression: EngineCodec | Compressor | None = None,
) -> Tensor:
    factors = (prescale_factor, postscale_factor)
    reduced: tuple[Tensor, ...] = _Allreduce.apply(op, [name], factors, group, compression, x)
    return reduced[0]


@_differentiable(verbs.grouped_allreduce)
def grouped_allreduce(
    xs: Sequence[Tensor],
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    outs: Sequence[Tensor] | None = None,
    group: Group | None = None,
    compression: EngineCodec | Compressor | None = None,
) -> list[Tensor]:
    if outs is not None:
        raise InvalidArgumentError("grouped_allreduce: outs cannot be differentiated")
    names = [None if name is None else f"{name}.{i}" for i in range(len(xs))]
    factors = (prescale_factor, postscale_factor)
    return list(_Allreduce.apply(op, names, factors, group, compression, *xs))


@_differentiable(verbs.allgather)
def allgather(
    x: Tensor,
    name: str | None = None,
    *,
    sizes: Sequence[int] | None = None,
    group: Group | None = None,
) -> Tensor:
    return scaled_allgather(x, name, sizes=sizes, group=group)


def scaled_allgather(
    x: Tensor,
    name: str | None = None,
    *,
    sizes: Sequence[int] | None = None,
    group: Group | None = None,
    scale: float = 1.0,
) -> Tensor:
    """allgather(), whose gradient is multiplied by `scale`."""
    gathered: Tensor = _Allgather.apply(x, name, sizes, group, scale)
    return gathered


@_differentiable(verbs.broadcast)
def broadcast(
    x: Tensor,
    root_rank: int = 0,
    name: str | None = None,
    *,
    out: Tensor | None = None,  # noqa: ARG001  # There is none.
    group: Group | None = None,
) -> Tensor:
    return scaled_broadcast(x, root_rank, name, group=group)


def scaled_broadcast(
    x: Tensor,
    root_rank: int = 0,
    name: str | None = None,
    *,
    group: Group | None = None,
    scale: float = 1.0,
) -> Tensor:
    """broadcast(), whose gradient is multiplied by `scale`."""
    got: Tensor = _Broadcast.apply(x, root_rank, name, group, scale)
    return got


@_differentiable(verbs.reducescatter)
def reducescatter(
    x: Tensor,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> Tensor:
    factors = (prescale_factor, postscale_factor)
    return scaled_reducescatter(x, op, name, factors, group=group)


def scaled_reducescatter(
    x: Tensor,
    op: ReduceOp = Average,
    name: str | None = None,
    factors: tuple[float, float] = (1.0, 1.0),
    *,
    group: Group | None = None,
    scale: float = 1.0,
) -> Tensor:
    """reducescatter(), whose gradient is multiplied by `scale`."""
    part: Tensor = _Reducescatter.apply(x, op, name, factors, group, scale)
    return part


@_differentiable(verbs.alltoall)
def alltoall(
    x: Tensor,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    *,
    group: Group | None = None,
) -> tuple[Tensor, list[int]]:
    out, received = _Alltoall.apply(x, splits, name, group)
    return out, received
