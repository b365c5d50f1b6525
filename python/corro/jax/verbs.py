"""The verbs: on arrays with values by the engine itself, on traced ones as a part of a program."""

from __future__ import annotations

from typing import Any

import jax

from corro import _native
from corro._context import Group
from corro._reduce_op import Average, ReduceOp
from corro.errors import InvalidArgumentError
from corro.jax import primitives
from corro.jax._arrays import home, host, is_traced
from corro.jax._eager import homes
from corro.jax._eager import verbs as _verbs
from corro.jax.compression import CastCodec, Compression, checked


def allreduce(
    x: Any,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
    compression: CastCodec | None = Compression.none,
) -> jax.Array:
    codec = checked(compression)
    if is_traced([x]):
        return primitives.collective(
            _native.ALLREDUCE,
            [x],
            op=op,
            prescale=prescale_factor,
            postscale=postscale_factor,
            group=group,
            codec=codec,
            name=name,
        )[0]
    return home(
        _verbs.run_allreduce(
            host(x, "allreduce"),
            op,
            name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            group=group,
            compression=codec if codec.address else None,
        )
    )


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
    """Returns a pytree of arrays, such as a list of them, reduced as one unit."""
    xs, shape = jax.tree.flatten(tree)
    if not xs:
        raise InvalidArgumentError("grouped_allreduce: no arrays given")
    codec = checked(compression)
    if is_traced(xs):
        made = primitives.collective(
            _native.ALLREDUCE,
            xs,
            op=op,
            prescale=prescale_factor,
            postscale=postscale_factor,
            group=group,
            codec=codec,
            name=name,
        )
    else:
        made = (
            _verbs.grouped_allreduce(
                [host(x, "grouped_allreduce") for x in xs],
                op,
                name,
                prescale_factor=prescale_factor,
                postscale_factor=postscale_factor,
                group=group,
                compression=codec,
            )
            .mapped(homes)
            .run()
        )
    return jax.tree.unflatten(shape, made)
