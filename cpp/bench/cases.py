"""What the drivers of small operations share: cases, their answers, and their times."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

MANY = [(100, 4000), (200, 65536)]  # Operations, bytes of each.

Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A call that reduces f32 tensors over all ranks in place, to their mean or to their sum.
    Without tensors it has no answer to check."""

    call: Call
    tensors: Sequence[torch.Tensor]
    mean: bool = True

    def check(self, rank: int, size: int) -> None:
        """Ends the program unless every element is right; the tensors are zeros then."""
        bases = [(torch.arange(t.numel()) + i) % 13 for i, t in enumerate(self.tensors)]
        for tensor, base in zip(self.tensors, bases, strict=True):
            tensor.copy_(base + rank)
        self.call()
        for tensor, base in zip(self.tensors, bases, strict=True):
            total = base * size + size * (size - 1) // 2
            want = total / size if self.mean else total
            if not torch.equal(tensor, want.to(tensor.dtype)):
                sys.exit("wrong answer")
            tensor.zero_()


@dataclass(frozen=True)
class Measurement:
    """How many samples are taken, and on which rank."""

    rank: int
    size: int
    samples: int

    def run(self, cases: Mapping[str, Case], times: int = 1) -> None:
        """Checks the cases, then measures them in turns: so many calls in a row are a sample. Rank
        0 prints a line for each case. The first fifth of the samples is dropped."""
        for case in cases.values():
            case.check(self.rank, self.size)
        taken: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(self.samples):
            for name, case in cases.items():
                taken[name].append(timed(case.call, times))
        if self.rank != 0:
            return
        for name, all_of in taken.items():
            kept = sorted(all_of[self.samples // 5 :])
            middle = kept[len(kept) // 2]
            print(json.dumps({"case": name, "min_us": kept[0], "median_us": middle}), flush=True)


def many(
    start: Callable[..., Any],
    wait: Callable[[Any], object],
    tensors: Sequence[torch.Tensor],
    names: Sequence[str | None],
) -> Call:
    """Starts an allreduce of each tensor, then waits for all."""

    def run() -> None:
        for handle in [start(t, name=n) for t, n in zip(tensors, names, strict=True)]:
            wait(handle)

    return run


def timed(call: Call, times: int) -> float:
    """Returns microseconds for each of so many calls in a row."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) * 1e6 / times
