"""Verbs on arrays that are traced, as parts of the program that is made of them (primitives.py).

The arguments are those of the functions of these names in _eager.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from corro import _context, _native
from corro._context import Group
from corro._reduce_op import Average, ReduceOp
from corro._verbs import names_of
from corro.errors import InvalidArgumentError
from corro.jax.compression import CastCodec, Compression, checked
from corro.jax.primitives import collective


def grouped_allreduce(
    tree: Any,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
    compression: CastCodec | None = Compression.none,
) -> Any:
    xs, shape = jax.tree.flatten(tree)
    names_of(xs, name, "grouped_allreduce")
    made = collective(
        _native.ALLREDUCE,
        xs,
        op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
        group=group,
        codec=checked(compression),
        name=name,
    )
    return jax.tree.unflatten(shape, made)


def broadcast_parameters(
    tree: Any, root_rank: int = 0, name: str | None = None, *, group: Group | None = None
) -> Any:
    xs, shape = jax.tree.flatten(tree)
    names_of(xs, name, "broadcast_parameters")
    made = collective(_native.BROADCAST, xs, root_rank=root_rank, group=group, name=name)
    return jax.tree.unflatten(shape, made)


def allgather(x: Any, name: str | None = None, *, group: Group | None = None) -> Any:
    return collective(_native.ALLGATHER, [x], group=group, name=name)[0]


def reducescatter(
    x: Any,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> Any:
    return collective(
        _native.REDUCESCATTER,
        [x],
        op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
        group=group,
        name=name,
    )[0]


def alltoall(
    x: Any,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    *,
    group: Group | None = None,
) -> tuple[Any, list[int]]:
    size = _context.world_or(group).size()
    if splits is not None:
        raise InvalidArgumentError(
            "alltoall: a compiled function sends equal parts; leave splits out, or call it outside"
            " of jit"
        )
    made = collective(_native.ALLTOALL, [x], group=group, name=name)[0]
    return made, [x.shape[0] // size] * size
