"""corro's verbs on JAX's arrays, outside and inside of jit.

    import jax, corro, corro.jax

    corro.init()
    mean = corro.jax.allreduce(jax.numpy.arange(4.0))

    @jax.jit
    def step(weights, batch):
        gradients = jax.grad(loss)(weights, batch)
        return update(weights, corro.jax.grouped_allreduce(gradients))

For arrays in CPU memory. A compiled function can have allreduce, grouped_allreduce, allgather,
broadcast, broadcast_parameters, reducescatter and alltoall, of shapes that are the same on every
rank; jit, grad, vmap and lax's control flow work on them. Gradients are as Horovod defines them:
that of a sum is the sum of all ranks' gradients. There an error is what JAX makes of the engine's:
a JaxRuntimeError or a ValueError. Start compiled functions from one thread, in the same order on
every rank.
"""

from __future__ import annotations

from typing import Any

from corro import Adasum, Average, Group, Max, Min, Product, ReduceOp, Sum
from corro._calls import Handle, poll, synchronize
from corro.jax import _required as _required
from corro.jax.compression import Compression
from corro.jax.embedding import EmbeddingTable, Lookup
from corro.jax.verbs import (
    allgather,
    allgather_async,
    allgather_object,
    allreduce,
    allreduce_async,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_async,
    broadcast_object,
    broadcast_parameters,
    grouped_allreduce,
    grouped_allreduce_async,
    join,
    reducescatter,
    reducescatter_async,
)

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "EmbeddingTable",
    "Group",
    "Handle",
    "Lookup",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_async",
    "broadcast_object",
    "broadcast_parameters",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    if name == "DistributedOptimizer":  # It needs Optax, which verbs do not.
        from corro.jax.optimizer import DistributedOptimizer

        return DistributedOptimizer
    raise AttributeError(f"module 'corro.jax' has no attribute {name!r}")
