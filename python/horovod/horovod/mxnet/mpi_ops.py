"""Horovod's collectives on MXNet's arrays: each is one call of corro.numpy, on the same memory.

They block until the result is there. `priority` is taken, as Horovod takes it, and not needed:
small named arrays travel together in the order in which they are ready.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import mxnet as mx

import corro.numpy as verbs
from horovod.common.exported import *  # noqa: F403  # Scripts look for them here, too.
from horovod.common.handles import synchronize
from horovod.common.operations import Reduction, numbered, own_name, running, start
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_op import reduction_of
from horovod.mxnet.arrays import copied, memory_of, new

if TYPE_CHECKING:
    from corro import Group

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allreduce",
    "grouped_allreduce_",
]


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Any = None,
) -> Any:
    """Returns the tensor, of any shape, reduced over all ranks; the average by default."""
    how = priority, prescale_factor, postscale_factor, process_set, op
    return allreduce_(copied(tensor), average, name, *how)


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Any = None,
) -> Any:
    """Reduces the tensor over all ranks, in place, and returns it; the average by default."""
    del priority
    reduction = Reduction(reduction_of(op, average), prescale_factor, postscale_factor, process_set)
    synchronize(start_allreduce_(tensor, name, reduction, process_set))
    return tensor


def start_allreduce_(
    tensor: Any, name: str | None, reduction: Reduction, process_set: ProcessSet
) -> int:
    """Starts to reduce the tensor in place, and returns a handle to wait for."""
    how = reduction.arguments
    return _start_("allreduce", verbs.allreduce_async, tensor, name, process_set, **how)


def _start_(
    kind: str,
    verb: Callable[..., verbs.Handle[Any]],
    tensor: Any,
    name: str | None,
    process_set: ProcessSet,
    **how: Any,
) -> int:
    memory, own = memory_of(tensor), own_name(kind, name, process_set)

    def begin(group: Group) -> verbs.Handle[Any]:
        return verb(memory, name=own, out=memory, group=group, **how)

    return start(kind, [own], process_set, begin, lambda _: tensor)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Any = None,
) -> Any:
    """Returns several tensors, reduced over all ranks as one unit; what is empty, as it is."""
    how = priority, prescale_factor, postscale_factor, process_set, op
    return grouped_allreduce_([copied(tensor) for tensor in tensors], average, name, *how)


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Any = None,
) -> Any:
    """Reduces several tensors over all ranks as one unit, in place, and returns them."""
    del priority
    reduction = Reduction(reduction_of(op, average), prescale_factor, postscale_factor, process_set)
    if tensors:
        synchronize(start_grouped_allreduce_(tensors, name, reduction, process_set))
    return tensors


def start_grouped_allreduce_(
    tensors: Sequence[Any], name: str | None, reduction: Reduction, process_set: ProcessSet
) -> int:
    """Starts to reduce several tensors as one unit, in place, and returns a handle to wait for."""
    memories = [memory_of(tensor) for tensor in tensors]
    own = own_name("grouped_allreduce", name, process_set)

    def begin(group: Group) -> verbs.Handle[Any]:
        return verbs.grouped_allreduce_async(
            memories, name=own, outs=memories, group=group, **reduction.arguments
        )

    names = numbered(own, len(memories))
    return start("allreduce", names, process_set, begin, lambda _: tensors)


def allgather(
    tensor: Any,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns every rank's tensor, one after the other along dim 0, which may differ."""
    del priority
    source, own = memory_of(tensor), own_name("allgather", name, process_set)
    with running("allgather", [own], process_set) as group:
        return new(verbs.allgather(source, own, group=group), tensor)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the tensor of a rank of the world on every rank."""
    return broadcast_(copied(tensor), root_rank, name, priority, process_set)


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Fills the tensor with that of a rank of the world, and returns it."""
    del priority
    return synchronize(start_broadcast_(tensor, root_rank, name, process_set))


def start_broadcast_(
    tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts to fill the tensor with that of a rank, and returns a handle to wait for."""
    how = {"root_rank": root_rank}
    return _start_("broadcast", verbs.broadcast_async, tensor, name, process_set, **how)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends splits[r] rows to rank r and returns what came; with `splits` also how much from each.

    `splits` is a list or an NDArray of integers; equal parts if not given.
    """
    del priority
    source, own = memory_of(tensor), own_name("alltoall", name, process_set)
    if isinstance(splits, mx.nd.NDArray):
        splits = splits.asnumpy()
    with running("alltoall", [own], process_set) as group:
        out, received = verbs.alltoall(source, splits, own, group=group)
    made = new(out, tensor)
    return made if splits is None else (made, mx.nd.array(received, dtype="int32"))
