"""Verbs on arrays that have their values, by the engine's verbs on host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy

from corro import _native
from corro._calls import Call
from corro._context import Group
from corro._host_arrays import HostArrays
from corro._reduce_op import ReduceOp
from corro._verbs import Verbs
from corro.jax._arrays import home, host

verbs = Verbs(HostArrays())


def homes(arrays: Sequence[Any]) -> list[jax.Array]:
    """Returns host arrays as JAX's."""
    return [home(x) for x in arrays]


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
