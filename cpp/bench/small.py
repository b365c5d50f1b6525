"""small.py corro|gloo|noop SAMPLES: the small operations that training is made of, from Python.

Runs on every rank; rank 0 prints a JSON line for each case: {case, min_us, median_us}. The cases:

    numpy, torch    corro.numpy.allreduce, corro.torch.allreduce_ of 4 bytes
    distributed     torch.distributed.all_reduce of 4 bytes
    100x4000, 200x65536   so many operations of so many bytes in the background, then a wait for
                    each; `one` is a single allreduce of all these bytes, taken in turns with them

`noop` is a back end of torch.distributed in Python that does nothing: what torch costs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

import corro
import corro.numpy
import corro.torch

BATCH = 200  # Of what takes microseconds: the clock's own cost stays below a hundredth.
MANY = [(100, 4000), (200, 65536)]  # Operations, bytes of each.

Case = Callable[[], object]


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


def timed(case: Case, times: int) -> float:
    """Returns microseconds for each of so many calls in a row."""
    start = time.perf_counter()
    for _ in range(times):
        case()
    return (time.perf_counter() - start) * 1e6 / times


def measure(cases: dict[str, Case], samples: int, times: int = 1) -> None:
    """Measures cases in turns. The first fifth of the samples is dropped."""
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(samples):
        for name, case in cases.items():
            taken[name].append(timed(case, times))
    if dist.get_rank() != 0:
        return
    for name, all_of in taken.items():
        kept = sorted(all_of[samples // 5 :])
        middle = kept[len(kept) // 2]
        print(json.dumps({"case": name, "min_us": kept[0], "median_us": middle}), flush=True)


def many(tensors: list[torch.Tensor], names: list[str | None]) -> Case:
    """Starts an allreduce of each tensor with corro's verbs, then waits for all."""

    def run() -> None:
        start = corro.torch.allreduce_async_
        for handle in [start(t, name=n) for t, n in zip(tensors, names, strict=True)]:
            handle.wait()

    return run


def many_of_torch(tensors: list[torch.Tensor]) -> Case:
    """The same through torch.distributed."""

    def run() -> None:
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()

    return run


def measure_corro(samples: int) -> None:
    """Measures what is corro's own."""
    array, tensor = numpy.zeros(1, numpy.float32), torch.zeros(1)
    verbs: dict[str, Case] = {
        "numpy": lambda: corro.numpy.allreduce(array),
        "torch": lambda: corro.torch.allreduce_(tensor),
    }
    measure(verbs, samples, BATCH)
    memories: dict[str, Callable[[int], torch.Tensor]] = {
        "private": torch.zeros,
        "arena": corro.torch.empty,
    }
    for memory, allocate in memories.items():
        for count, size in MANY:
            measure(many_cases(memory, allocate, count, size), samples)


def many_cases(
    memory: str, allocate: Callable[[int], torch.Tensor], count: int, size: int
) -> dict[str, Case]:
    """Returns the cases of one number of operations in one kind of memory."""
    tensors = [allocate(size // 4) for _ in range(count)]
    together = allocate(count * size // 4)
    place = f"{count}x{size}-{memory}"
    return {
        f"{place}-one": lambda: corro.torch.allreduce_(together),
        f"{place}-ordered": many(tensors, [None] * count),
        f"{place}-named": many(tensors, [f"{place}.{i}" for i in range(count)]),
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
    tensor = torch.zeros(1)
    measure({"distributed": lambda: dist.all_reduce(tensor)}, samples, BATCH)
    if backend == "noop":
        return
    for count, size in MANY:
        tensors = [torch.zeros(size // 4) for _ in range(count)]
        measure({f"{count}x{size}-private-torch": many_of_torch(tensors)}, samples)
    if backend == "corro":
        measure_corro(samples)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
