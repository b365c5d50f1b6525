"""small.py corro|gloo|noop SAMPLES: the small operations that training is made of, from Python.

Runs on every rank; rank 0 prints a JSON line for each case: {case, min_us, median_us}. The cases:

    numpy, torch    corro.numpy.allreduce, corro.torch.allreduce_ of 4 bytes
    distributed     torch.distributed.all_reduce of 4 bytes
    100x4000, 200x65536   so many operations of so many bytes in the background, then a wait for
                    each; `one` is a single allreduce of all these bytes, taken in turns with them

`noop` is a back end of torch.distributed in Python that does nothing: what torch costs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy
import torch
import torch.distributed as dist
from cases import MANY, Call, Case, Measurement, many
from torch._C import _distributed_c10d as c10d

import corro
import corro.numpy
import corro.torch

BATCH = 200  # Of what takes microseconds: the clock's own cost stays below a hundredth.


class NoWork(c10d.Work):
    """Done from the start."""

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002
        return True


class NoBackend(c10d.Backend):
    """Does nothing, as fast as Python can."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._options = c10d.Backend.Options("noop")

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> c10d.Work:  # noqa: ARG002
        return NoWork()

    def barrier(self, opts: Any = None) -> c10d.Work:  # noqa: ARG002
        return NoWork()

    def getBackendName(self) -> str:  # noqa: N802
        return "noop"

    @property
    def options(self) -> c10d.Backend.Options:
        return self._options


# torch's own answer for a subclass in Python asks the subclass, for ever.
for _name, _value in vars(c10d.Backend).items():
    if isinstance(_value, property) and _name.lstrip("_").startswith("supports_"):
        setattr(NoBackend, _name, property(lambda _: False))


def many_of_torch(tensors: list[torch.Tensor]) -> Call:
    """Starts an allreduce of each tensor through torch.distributed, then waits for all."""

    def run() -> None:
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()

    return run


def measure_torch(measurement: Measurement) -> None:
    """Measures what goes through torch.distributed."""
    tensor, noop = torch.zeros(1), dist.get_backend() == "noop"
    case = Case(lambda: dist.all_reduce(tensor), [] if noop else [tensor], mean=False)
    measurement.run({"distributed": case}, BATCH)
    if noop:
        return
    for count, size in MANY:
        tensors = [torch.zeros(size // 4) for _ in range(count)]
        case = Case(many_of_torch(tensors), tensors, mean=False)
        measurement.run({f"{count}x{size}-private-torch": case})


def measure_corro(measurement: Measurement) -> None:
    """Measures what is corro's own."""
    tensor = torch.zeros(1)
    array = tensor.numpy()  # The same memory.
    in_place = Case(lambda: numpy.copyto(array, corro.numpy.allreduce(array)), [tensor])
    in_place.check(measurement.rank, measurement.size)
    verbs = {
        "numpy": Case(lambda: corro.numpy.allreduce(array), []),
        "torch": Case(lambda: corro.torch.allreduce_(tensor), [tensor]),
    }
    measurement.run(verbs, BATCH)
    memories: dict[str, Callable[[int], torch.Tensor]] = {
        "private": torch.zeros,
        "arena": corro.torch.empty,
    }
    for memory, allocate in memories.items():
        for count, size in MANY:
            measurement.run(many_cases(memory, allocate, count, size))


def many_cases(
    memory: str, allocate: Callable[[int], torch.Tensor], count: int, size: int
) -> dict[str, Case]:
    """Returns the cases of one number of operations in one kind of memory."""
    tensors = [allocate(size // 4) for _ in range(count)]
    together = allocate(count * size // 4)
    place = f"{count}x{size}-{memory}"
    names = [f"{place}.{i}" for i in range(count)]
    start, wait = corro.torch.allreduce_async_, corro.torch.Handle.wait
    return {
        f"{place}-one": Case(lambda: corro.torch.allreduce_(together), [together]),
        f"{place}-ordered": Case(many(start, wait, tensors, [None] * count), tensors),
        f"{place}-named": Case(many(start, wait, tensors, names), tensors),
    }


def main() -> None:
    """Measures one back end."""
    torch.set_num_threads(1)
    backend, samples = sys.argv[1], int(sys.argv[2])
    if backend == "noop":
        dist.Backend.register_backend(
            "noop", lambda _store, rank, size, _timeout: NoBackend(rank, size), devices=["cpu"]
        )
    dist.init_process_group(backend)
    measurement = Measurement(dist.get_rank(), dist.get_world_size(), samples)
    measure_torch(measurement)
    if backend == "corro":
        measure_corro(measurement)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
