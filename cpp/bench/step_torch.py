"""Times a training step of 1 000 parameters of 16 elements, with DistributedOptimizer and without.

    corro run -np 2 --show 0 python cpp/bench/step_torch.py corro.torch SECONDS
    horovodrun -np 2 --gloo python cpp/bench/step_torch.py horovod.torch SECONDS

The two take turns, after the parameters of one step were compared with what the mean of the
gradients makes of them. Rank 0 prints the medians in microseconds: {"with": 1.0, "without": 1.0}
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from types import ModuleType

import torch
from torch import nn

RATE = 0.5


class Training:
    """A model of many small parameters, each used by an operation of its own."""

    def __init__(self, library: ModuleType, distributed: bool) -> None:
        self.library = library
        self.weights = nn.ParameterList(torch.zeros(16) for _ in range(1000))
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.weights, lr=RATE)
        if distributed:
            self.optimizer = library.DistributedOptimizer(self.optimizer)

    def step(self, x: torch.Tensor) -> float:
        """Returns the microseconds of a step, which all ranks begin together."""
        self.library.barrier()
        start = time.perf_counter()
        self.optimizer.zero_grad()
        torch.stack([(weight * x).sum() for weight in self.weights]).sum().backward()
        self.optimizer.step()
        return (time.perf_counter() - start) * 1e6

    def check_step(self, x: torch.Tensor, gradient: torch.Tensor) -> None:
        """Takes the first step; ends the program unless all weights went down that gradient."""
        self.step(x)
        if not all(torch.equal(weight, -RATE * gradient) for weight in self.weights):
            sys.exit("wrong step")


def main() -> None:
    library = importlib.import_module(sys.argv[1])  # Their interfaces are alike.
    library.init()
    torch.set_num_threads(1)
    x = torch.full((16,), library.rank() + 1.0)  # Also the gradient of each parameter.
    trainings = {"with": Training(library, True), "without": Training(library, False)}
    times: dict[str, list[float]] = {name: [] for name in trainings}
    trainings["with"].check_step(x, torch.full((16,), (library.size() + 1) / 2))
    trainings["without"].check_step(x, x)
    for _ in range(3):
        for training in trainings.values():
            training.step(x)
    for _ in range(max(5, int(float(sys.argv[2]) / 0.1))):
        for name, training in trainings.items():
            times[name].append(training.step(x))
    if library.rank() == 0:
        print(json.dumps({name: statistics.median(taken) for name, taken in times.items()}))


main()
