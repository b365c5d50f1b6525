"""Verbs on arrays that have their values, by the engine's verbs on host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy

from corro import _native
from corro._calls import Call
from corro._context import Group
from corro._host_arrays import HostArrays
from corro._reduce_op import Average, ReduceOp
from corro._verbs import Verbs, names_of
from corro.jax._arrays import home, host
from corro.jax.compression import CastCodec, Compression, checked

verbs = Verbs(HostArrays())


def _joined(
    tree: Any, verb: str, name: str | None, describe: Callable[..., Call[Any]]
) -> Call[Any]:
    """Returns what describe() makes of each array of a pytree and its name, as one unit."""
    xs, shape = jax.tree.flatten(tree)
    names = names_of(xs, name, verb)
    calls = [describe(host(x, verb), own) for x, own in zip(xs, names, strict=True)]
    return Call.joined(calls).mapped(
        lambda made: jax.tree.unflatten(shape, [home(one) for one in made])
    )


def run_allreduce(
    x: Any,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
    compression: CastCodec | None = Compression.none,
) -> jax.Array:
    """Returns x reduced over all ranks; the average by default.

    Args:
        x: the array; same shape and dtype on every rank.
        op: the reduction; averages of integers round toward zero.
        name: says which array this is: ranks may reduce named arrays in different orders. Without
            one the order of the calls says it, and in a compiled function its place there.
        prescale_factor: each rank's x is multiplied by it first.
        postscale_factor: the result is multiplied by it.
        group: the ranks that take part; the world if not given.
        compression: one of Compression: floating-point numbers travel in its smaller form.
    """
    codec = checked(compression)
    made = verbs.run_allreduce(
        host(x, "allreduce"),
        op,
        name,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        group=group,
        compression=codec if codec.address else None,
    )
    return home(made)


def allreduce(x: Any, op: ReduceOp = Average, name: str | None = None, **how: Any) -> Call[Any]:
    """Reduces x over all ranks; as allreduce()."""
    how["compression"] = checked(how.get("compression"))
    return verbs.allreduce(host(x, "allreduce"), op, name, **how).mapped(home)


def grouped_allreduce(
    tree: Any,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
    compression: CastCodec | None = Compression.none,
) -> Call[Any]:
    """Returns a pytree of arrays, such as a list, reduced as one unit; otherwise as allreduce().

    With a name, the arrays have the names `name.0`, `name.1` and so on.
    """
    codec = checked(compression)
    return _joined(
        tree,
        "grouped_allreduce",
        name,
        lambda x, own: verbs.allreduce(
            x,
            op,
            own,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            group=group,
            compression=codec,
        ),
    )


def allgather(x: Any, name: str | None = None, *, group: Group | None = None) -> Call[Any]:
    """Returns every rank's x, one after the other along dim 0.

    Args:
        x: the array, with at least one dim. Dim 0 may differ between ranks, but not in a compiled
            function; the others are the same.
        name: as in allreduce().
        group: the ranks that take part; the world if not given.
    """
    return verbs.allgather(host(x, "allgather"), name, group=group).mapped(home)


def broadcast(
    x: Any, root_rank: int = 0, name: str | None = None, *, group: Group | None = None
) -> Call[Any]:
    """Returns the root's x on every rank; name and group are as in allreduce()."""
    return verbs.broadcast(host(x, "broadcast"), root_rank, name, group=group).mapped(home)


def broadcast_parameters(
    tree: Any, root_rank: int = 0, name: str | None = None, *, group: Group | None = None
) -> Call[Any]:
    """Returns the root's pytree of arrays on every rank: weights, an optimizer's state.

    It has the same shapes and dtypes everywhere. Otherwise as grouped_allreduce().
    """
    return _joined(
        tree,
        "broadcast_parameters",
        name,
        lambda x, own: verbs.broadcast(x, root_rank, own, group=group),
    )


def reducescatter(
    x: Any,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> Call[Any]:
    """Reduces x over all ranks and returns this rank's part of dim 0; otherwise as allreduce().

    If dim 0 cannot be divided evenly, the first ranks get one row more; in a compiled function it
    has to be.
    """
    return verbs.reducescatter(
        host(x, "reducescatter"),
        op,
        name,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        group=group,
    ).mapped(home)


def alltoall(
    x: Any,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    *,
    group: Group | None = None,
) -> Call[tuple[jax.Array, list[int]]]:
    """Sends splits[r] rows of dim 0 to each rank r.

    Returns what came, in rank order, and how many rows came from each rank.

    Args:
        x: the array, with at least one dim; the other dims are the same on every rank.
        splits: rows for each rank; equal parts if not given, as always in a compiled function.
        name: as in allreduce().
        group: the ranks that take part; the world if not given.
    """
    return verbs.alltoall(host(x, "alltoall"), splits, name, group=group).mapped(
        lambda both: (home(both[0]), both[1])
    )


def run(
    *arrays: Any,
    kind: int,
    op: ReduceOp,
    root: int,
    prescale: float,
    postscale: float,
    group: Group,
    size: int,
    codec: Any,
    name: str | None,
) -> list[jax.Array]:
    """What a verb of a compiled function does (primitives.py), of arrays that have their values.

    Blocks. `root` is a rank of the group.
    """
    xs = [host(x, _TITLES[kind]) for x in arrays]
    names = [None if name is None else f"{name}.{i}" for i in range(len(xs))]
    scales: dict[str, Any] = {
        "prescale_factor": prescale,
        "postscale_factor": postscale,
        "group": group,
    }
    world_root = group.ranks[root]
    calls: list[Call[Any]] = []
    for x, own in zip(xs, names, strict=True):
        if kind == _native.ALLREDUCE:
            calls.append(verbs.allreduce(x, op, own, compression=codec, **scales))
        elif kind == _native.BROADCAST:
            calls.append(verbs.broadcast(x, world_root, own, group=group))
        elif kind == _native.REDUCE:
            calls.append(verbs.reduce(x, world_root, op, own, group=group))
        elif kind == _native.ALLGATHER:
            calls.append(verbs.allgather(x, own, sizes=[len(x)] * size, group=group))
        elif kind == _native.REDUCESCATTER:
            calls.append(verbs.reducescatter(x, op, own, **scales))
        else:
            calls.append(verbs.alltoall(x, None, own, group=group).mapped(lambda both: both[0]))
    # An alltoall without a name has told its sizes already, one after the other.
    results = Call.joined(calls).run()
    return [
        home(numpy.zeros_like(x) if result is None else result)
        for x, result in zip(xs, results, strict=True)
    ]


_TITLES = {
    _native.ALLREDUCE: "allreduce",
    _native.BROADCAST: "broadcast",
    _native.REDUCE: "reduce",
    _native.ALLGATHER: "allgather",
    _native.REDUCESCATTER: "reducescatter",
    _native.ALLTOALL: "alltoall",
}
