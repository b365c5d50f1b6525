"""hvd_cases.py WHAT EFFORT: what a script that says `import horovod.torch as hvd` waits for.

    horovodrun -np 2 python cpp/bench/hvd_cases.py verbs 60

The same on corro and on Horovod. WHAT is `verbs`, `idle`, or a model of models.py: then there is a
step on gradients of its sizes, with DistributedOptimizer and without, in turns. Answers are checked
first. Rank 0 prints lines of JSON: {"case": "4 B", "us": 1.0}
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from models import TASKS

import horovod.torch as hvd


def say(case: str, **figures: float) -> None:
    if hvd.rank() == 0:
        print(json.dumps({"case": case, **figures}), flush=True)


def median_us(function: Callable[[], object], samples: int) -> float:
    """Returns a median, the first calls left out; ranks begin together."""
    for _ in range(max(3, samples // 10)):
        function()
    hvd.barrier()
    taken = []
    for _ in range(samples):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


# -- verbs ----------------------------------------------------------------------------------------


def time_verbs(samples: int) -> None:
    for case, count, share in (("4 B", 1, 5), ("1 MiB", 1 << 18, 2), ("64 MiB", 1 << 24, 0.1)):
        time_allreduce(case, count, max(5, int(samples * share)))
    for case, tensors, count in (("100 x 1000", 100, 1000), ("200 x 64 KiB", 200, 1 << 14)):
        time_many(case, [torch.ones(count) for _ in range(tensors)], max(5, samples // 2))


def time_allreduce(case: str, count: int, samples: int) -> None:
    x = torch.full((count,), hvd.rank() + 1.0)
    reduced = hvd.allreduce(x, op=hvd.Sum, name=case)
    if not (reduced == hvd.size() * (hvd.size() + 1) / 2).all():
        sys.exit(f"{case}: wrong sum")
    say(case, us=median_us(lambda: hvd.allreduce(x, op=hvd.Sum, name=case), samples))


def time_many(case: str, tensors: Sequence[torch.Tensor], samples: int) -> None:
    names = [f"{case} {i}" for i in range(len(tensors))]

    def once() -> None:
        handles = [
            hvd.allreduce_async_(tensor, name=name)
            for tensor, name in zip(tensors, names, strict=True)
        ]
        for handle in handles:
            hvd.synchronize(handle)

    tensors[-1].fill_(hvd.rank())
    once()
    if not (tensors[-1] == (hvd.size() - 1) / 2).all():
        sys.exit(f"{case}: wrong average")
    say(case, us=median_us(once, samples))


# -- training -------------------------------------------------------------------------------------


class Training:
    """Parameters of a model's sizes, each with a gradient of ones times a factor."""

    def __init__(self, model: str, distributed: bool) -> None:
        sizes = [parameter.shape for parameter in TASKS[model].model().parameters()]
        self.weights = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
        self.bytes = sum(weight.numel() * 4 for weight in self.weights)
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.weights, lr=1.0)
        if distributed:
            self.optimizer = hvd.DistributedOptimizer(
                self.optimizer, named_parameters=[(str(i), w) for i, w in enumerate(self.weights)]
            )

    def step(self, factor: float) -> None:
        self.optimizer.zero_grad()
        (torch.stack([weight.sum() for weight in self.weights]).sum() * factor).backward()
        self.optimizer.step()


def time_steps(model: str, samples: int) -> None:
    alone = Training(model, distributed=False)
    alone.step(0.0)
    before = resident_bytes()
    together = Training(model, distributed=True)
    weights = together.bytes
    together.step(hvd.rank() + 1.0)
    if not all((weight == -(hvd.size() + 1) / 2).all() for weight in together.weights):
        sys.exit(f"{model}: wrong step")
    together.step(0.0)
    # Weights and gradients are there without anybody's help.
    extra = resident_bytes() - before - 2 * weights
    taken: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(samples):
        for training, distributed in ((together, True), (alone, False)):
            hvd.barrier()
            start = time.perf_counter()
            training.step(0.0)
            taken[distributed].append((time.perf_counter() - start) * 1e6)
    with_us, alone_us = statistics.median(taken[True]), statistics.median(taken[False])
    say(model, us=with_us, alone_us=alone_us, extra_bytes=extra, gradient_bytes=weights)


def resident_bytes() -> int:
    """Returns this process's share of the memory that is there: of a shared page, its part."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)[1]) * 1024  # type: ignore[index]


# -- idle -----------------------------------------------------------------------------------------


def time_idle(seconds: int) -> None:
    """Processor time that an engine takes which has nothing to do, in a second."""
    hvd.allreduce(torch.ones(1), name="first")
    time.sleep(0.5)
    start = time.process_time()
    time.sleep(seconds)
    say("idle", us=(time.process_time() - start) / seconds * 1e6)


def main() -> None:
    what, effort = sys.argv[1], int(sys.argv[2])
    hvd.init()
    torch.set_num_threads(1)
    if what == "verbs":
        time_verbs(effort)
    elif what == "idle":
        time_idle(effort)
    else:
        time_steps(what, effort)


main()
