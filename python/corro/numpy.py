"""corro's verbs on numpy arrays.

    import numpy, corro, corro.numpy

    corro.init()
    mean = corro.numpy.allreduce(numpy.arange(4.0))

Anything that numpy.asarray takes, or that speaks DLPack, is an array here. Every verb also has a
form whose name ends in ``_async``, which returns a Handle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from numpy.typing import DTypeLike

from corro import _arguments, _context
from corro._calls import Handle, poll, running, starting, synchronize
from corro._context import Group, barrier, join
from corro._host_arrays import Array, HostArrays
from corro._reduce_op import Adasum, Average, Max, Min, Product, ReduceOp, Sum
from corro._verbs import Verbs

__all__ = [
    "Adasum",
    "Average",
    "Group",
    "Handle",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_async",
    "empty",
    "gather",
    "gather_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "recv",
    "recv_async",
    "reduce",
    "reduce_async",
    "reducescatter",
    "reducescatter_async",
    "scatter",
    "scatter_async",
    "send",
    "send_async",
    "synchronize",
]


def empty(shape: int | Sequence[int], dtype: DTypeLike = numpy.float64) -> Array:
    """Returns a zero-filled array in memory that this host's ranks share: verbs need no copy.

    It stays valid after corro.shutdown().
    """
    kind = numpy.dtype(dtype)
    dims = _arguments.shape(shape)
    count = int(numpy.prod(dims, dtype=numpy.int64))
    memory = _context.current().engine.alloc(max(1, count * kind.itemsize))
    return numpy.frombuffer(memory, dtype=kind, count=count).reshape(dims)


_verbs = Verbs(HostArrays())

allreduce, allreduce_async = _verbs.run_allreduce, _verbs.start_allreduce
grouped_allreduce = running(_verbs.grouped_allreduce)
grouped_allreduce_async = starting(_verbs.grouped_allreduce)
grouped_allgather = running(_verbs.grouped_allgather)
grouped_allgather_async = starting(_verbs.grouped_allgather)
grouped_reducescatter = running(_verbs.grouped_reducescatter)
grouped_reducescatter_async = starting(_verbs.grouped_reducescatter)
allgather, allgather_async = running(_verbs.allgather), starting(_verbs.allgather)
broadcast, broadcast_async = running(_verbs.broadcast), starting(_verbs.broadcast)
reduce, reduce_async = running(_verbs.reduce), starting(_verbs.reduce)
reducescatter, reducescatter_async = running(_verbs.reducescatter), starting(_verbs.reducescatter)
alltoall, alltoall_async = running(_verbs.alltoall), starting(_verbs.alltoall)
gather, gather_async = running(_verbs.gather), starting(_verbs.gather)
scatter, scatter_async = running(_verbs.scatter), starting(_verbs.scatter)
send, send_async = running(_verbs.send), starting(_verbs.send)
recv, recv_async = running(_verbs.recv), starting(_verbs.recv)
