"""compiled_jax.py corro|mpi4jax|gloo SAMPLES [PORT]: allreduces inside jax.jit, two ranks.

    corro run -np 2 python cpp/bench/compiled_jax.py corro 200

`corro` is corro.jax, `mpi4jax` needs mpirun, and `gloo` is what JAX has itself: psum over the
devices of two processes, with Gloo, which meet at a port of this host.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from compiled_cases import Body, Framework, measure


class Arrays:
    """What is the same for all whose arrays are those of one process."""

    def compiled(self, body: Body) -> Body:
        function = jax.jit(body)
        return lambda tensor, share: function(tensor, share).block_until_ready()

    def put(self, values: numpy.ndarray) -> Any:
        return jnp.asarray(values)

    def get(self, tensor: Any) -> numpy.ndarray:
        return numpy.asarray(tensor)


class Corro(Arrays):
    """Reduces by corro.jax."""

    def __init__(self) -> None:
        import corro.jax  # The other ways do without.

        corro.init()
        self.verbs, self.sum, self.rank = corro.jax, corro.Sum, corro.rank()

    def reduced(self, tensor: Any, name: str) -> Any:  # noqa: ARG002
        return self.verbs.allreduce(tensor, op=self.sum)


class Mpi4jax(Arrays):
    """Reduces by mpi4jax, with the MPI that started this process."""

    def __init__(self) -> None:
        import mpi4jax
        from mpi4py import MPI

        self.verbs, self.sum, self.all = mpi4jax, MPI.SUM, MPI.COMM_WORLD
        self.rank = MPI.COMM_WORLD.rank

    def reduced(self, tensor: Any, name: str) -> Any:  # noqa: ARG002
        return self.verbs.allreduce(tensor, op=self.sum, comm=self.all)


class Gloo:
    """Reduces by psum; an array has a part on each process."""

    def __init__(self, port: str) -> None:
        self.rank = int(os.environ["RANK"])
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=self.rank)
        self.mesh = jax.sharding.Mesh(numpy.array(jax.devices()), "ranks")
        self.parts = jax.sharding.PartitionSpec("ranks")

    def compiled(self, body: Body) -> Body:
        parts = self.parts
        each = jax.shard_map(
            body, mesh=self.mesh, in_specs=(parts, parts), out_specs=parts, check_vma=False
        )
        function = jax.jit(each)
        return lambda tensor, share: function(tensor, share).block_until_ready()

    def reduced(self, tensor: Any, name: str) -> Any:  # noqa: ARG002
        return jax.lax.psum(tensor, "ranks")

    def put(self, values: numpy.ndarray) -> Any:
        sharding = jax.sharding.NamedSharding(self.mesh, self.parts)
        return jax.make_array_from_process_local_data(sharding, values)

    def get(self, tensor: Any) -> numpy.ndarray:
        return numpy.asarray(tensor.addressable_shards[0].data)


def main() -> None:
    way, samples, *ports = sys.argv[1:]
    frameworks: dict[str, type[Framework]] = {"corro": Corro, "mpi4jax": Mpi4jax, "gloo": Gloo}
    measure(frameworks[way](*ports), int(samples))


main()
