"""The verbs that autograd goes through: the backward of each is a verb.

    y = corro.allreduce(model(x), corro.Sum)
    loss(y).backward()

What is differentiated is the sum of all ranks' losses, as in torch.distributed.nn: every rank of
the group runs backward() through its result, in the same order. That holds for derivatives of
every order. A front end whose users expect another sum scales gradients by `scale`.

Without an input that requires a gradient, or with `out`, a verb is as in corro.torch.verbs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import torch

from corro._context import Group, world_or
from corro._reduce_op import Average, ReduceOp
from corro._verbs import names_of
from corro.errors import InvalidArgumentError
from corro.torch import verbs
from corro.torch.adjoints import (
    Allgather,
    Allreduce,
    Alltoall,
    Broadcast,
    Reducescatter,
    applied,
)
from corro.torch.compression import Compressor, EngineCodec

if TYPE_CHECKING:
    from torch import Tensor


P = ParamSpec("P")
R = TypeVar("R")


def _differentiable(plain: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Calls `plain` unless its first parameter has a tensor that requires a gradient."""
    first = next(iter(inspect.signature(plain).parameters))

    def of(through: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(plain)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given = args[0] if args else kwargs.get(first)
            if _requires_grad(given) and kwargs.get("out") is None:
                return through(*args, **kwargs)
            return plain(*args, **kwargs)

        return call

    return of


def _requires_grad(given: object) -> bool:
    """Returns whether a tensor, or one of several in any kind of container, requires a gradient."""
    if not torch.is_grad_enabled():
        return False
    if isinstance(given, torch.Tensor):
        return given.requires_grad
    if not (isinstance(given, Iterable) and isinstance(given, Sized)):
        return False
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in given)


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
    how = Allreduce(op, prescale_factor, postscale_factor, world_or(group), compression)
    return applied(how, [x], [name])[0]


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
    how = Allreduce(op, prescale_factor, postscale_factor, world_or(group), compression)
    return applied(how, list(xs), names_of(xs, name, "grouped_allreduce"))


@_differentiable(verbs.allgather)
def allgather(
    x: Tensor,
    name: str | None = None,
    *,
    sizes: Sequence[int] | None = None,
    group: Group | None = None,
) -> Tensor:
    if sizes is None:
        return scaled_allgather([x], [name], group=group)[0]
    return applied(Allgather([list(sizes)], world_or(group)), [x], [name])[0]


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
    group, xs = world_or(group), list(xs)
    if not _requires_grad(xs):
        return verbs.calls.gathered(xs, names, group).run()
    sizes = verbs.calls.rows_of(group, xs, names, "allgather")
    return applied(Allgather(sizes, group), xs, names, scale=scale)


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
    return applied(Broadcast(root_rank, world_or(group)), [x], [name], scale=scale)[0]


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
    how = Reducescatter(op, prescale_factor, postscale_factor, world_or(group), compression)
    return applied(how, list(xs), names, scale=scale)


@_differentiable(verbs.alltoall)
def alltoall(
    x: Tensor,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    *,
    group: Group | None = None,
) -> tuple[Tensor, list[int]]:
    how = Alltoall(splits, world_or(group))
    [out] = applied(how, [x], [name])
    return out, list(how.received)
