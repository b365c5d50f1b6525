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
from corro._verbs import names_of
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
        names: Sequence[str | None],
        sizes: Sequence[Sequence[int]] | None,
        group: Group | None,
        scale: float,
        *xs: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.group, ctx.scale = world_or(group), scale
        if sizes is None:
            sizes = verbs.calls.rows_of(ctx.group, xs, names, "allgather")
        ctx.sizes = [list(one) for one in sizes]
        return _Allgather.gather(xs, names, ctx.sizes, ctx.group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        totals = verbs.grouped_allreduce(grads, Sum, postscale_factor=ctx.scale, group=ctx.group)
        rank = ctx.group.rank()
        own = [
            total.narrow(0, sum(sizes[:rank]), sizes[rank])
            for total, sizes in zip(totals, ctx.sizes, strict=True)
        ]
        return (None, None, None, None, *own)

    @staticmethod
    def gather(
        xs: Sequence[Tensor],
        names: Sequence[str | None],
        sizes: Sequence[Sequence[int]],
        group: Group,
    ) -> tuple[Tensor, ...]:
        calls = [
            verbs.calls.allgather(x, name, sizes=one, group=group)
            for x, name, one in zip(xs, names, sizes, strict=True)
        ]
        return tuple(Call.joined(calls).run())


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
        op: ReduceOp,
        names: Sequence[str | None],
        how: dict[str, Any],
        scale: float,
        *xs: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.op, ctx.group = op, world_or(how["group"])
        ctx.scale = scale * how["prescale_factor"] * how["postscale_factor"]
        ctx.scale /= ctx.group.size() if op == Average else 1
        ctx.rows = [x.shape[0] if x.dim() else 0 for x in xs]
        return tuple(verbs.calls.scattered(xs, op, names, **how).run())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        _check_linear(ctx.op, "reducescatter")
        size = ctx.group.size()
        sizes = [[rows // size + (i < rows % size) for i in range(size)] for rows in ctx.rows]
        wholes = _Allgather.gather(grads, [None] * len(grads), sizes, ctx.group)
        return (None, None, None, None, *[whole.mul_(ctx.scale) for whole in wholes])


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
    names = names_of(xs, name, "grouped_allreduce")
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
    of_all = None if sizes is None else [sizes]
    gathered: tuple[Tensor, ...] = _Allgather.apply([name], of_all, group, 1.0, x)
    return gathered[0]


@_differentiable(verbs.grouped_allgather)
def grouped_allgather(
    xs: Sequence[Tensor], name: str | None = None, *, group: Group | None = None
) -> list[Tensor]:
    return scaled_allgather(xs, names_of(xs, name, "grouped_allgather"), group=group)


def scaled_allgather(
    xs: Sequence[Tensor],
    names: Sequence[str | None],
    *,
    group: Group | None = None,
    scale: float = 1.0,
) -> list[Tensor]:
    """allgather() of each, under its name; gradients are multiplied by `scale`."""
    return list(_Allgather.apply(names, None, group, scale, *xs))


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
    compression: EngineCodec | Compressor | None = None,
) -> Tensor:
    return scaled_reducescatter(
        [x],
        op,
        [name],
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        group=group,
        compression=compression,
    )[0]


@_differentiable(verbs.grouped_reducescatter)
def grouped_reducescatter(
    xs: Sequence[Tensor],
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
    compression: EngineCodec | Compressor | None = None,
) -> list[Tensor]:
    return scaled_reducescatter(
        xs,
        op,
        names_of(xs, name, "grouped_reducescatter"),
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        group=group,
        compression=compression,
    )


def scaled_reducescatter(
    xs: Sequence[Tensor],
    op: ReduceOp,
    names: Sequence[str | None],
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
    compression: EngineCodec | Compressor | None = None,
    scale: float = 1.0,
) -> list[Tensor]:
    """reducescatter() of each, under its name; gradients, which travel whole, times `scale`."""
    how = {
        "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor,
        "group": group,
        "compression": compression,
    }
    return list(_Reducescatter.apply(op, names, how, scale, *xs))


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
