"""exposed_torch.py MODEL WAY STEPS: a training step with communication, and the same without.

    corro run -np 2 --show 0 python cpp/bench/exposed_torch.py resnet50 optimizer 5

WAY is `ddp-gloo` or `ddp-corro`, torch's DDP over that back end, or `optimizer`, corro's
DistributedOptimizer. The two kinds of step take turns; a figure is the time of the slowest rank.
First the gradients of one step are compared with the mean of what the ranks have by themselves.
Rank 0 prints medians in microseconds: {"alone": 1.0, "exposed": 1.0}; `exposed` is that of the
differences of neighbouring steps.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from models import TASKS, Task
from torch.nn.parallel import DistributedDataParallel

import corro.torch


class Training:
    """A model, its optimizer and this rank's batch."""

    def __init__(self, task: Task, way: str) -> None:
        torch.manual_seed(0)
        self.model = task.model()
        self.parameters = list(self.model.parameters())
        self.batch = task.batch(torch.Generator().manual_seed(dist.get_rank()))
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.parameters, lr=1e-4)
        if way.startswith("ddp"):
            self.model = DistributedDataParallel(self.model)
        elif way == "optimizer":
            named = self.model.named_parameters()
            self.optimizer = corro.torch.DistributedOptimizer(self.optimizer, named)

    def bring_gradients(self) -> None:
        x, classes = self.batch
        self.optimizer.zero_grad()
        scores = self.model(x)
        F.cross_entropy(scores.flatten(0, -2), classes.flatten()).backward()

    def step(self) -> float:
        """Returns the microseconds that the slowest rank takes; all begin together."""
        dist.barrier()
        start = time.perf_counter()
        self.bring_gradients()
        self.optimizer.step()
        took = torch.tensor((time.perf_counter() - start) * 1e6, dtype=torch.float64)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        return took.item()


def check_gradients(together: Training, alone: Training) -> None:
    """Ends the program unless gradients are the mean of the ranks' own."""
    together.bring_gradients()
    if isinstance(together.optimizer, corro.torch.optimizer.DistributedOptimizerBase):
        together.optimizer.synchronize()
    alone.bring_gradients()
    for ours, own in zip(together.parameters, alone.parameters, strict=True):
        assert ours.grad is not None
        assert own.grad is not None
        mean = own.grad / dist.get_world_size()
        dist.all_reduce(mean)
        scale = mean.abs().max().item()
        if not torch.allclose(ours.grad, mean, rtol=1e-4, atol=1e-5 * scale):
            sys.exit("wrong gradient")


def main() -> None:
    model, way, steps = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo" if way == "ddp-gloo" else "corro")
    if way == "optimizer":
        corro.torch.init()
    together, alone = Training(TASKS[model], way), Training(TASKS[model], "alone")
    check_gradients(together, alone)
    pairs = [(together.step(), alone.step()) for _ in range(int(steps) + 1)][1:]
    if dist.get_rank() == 0:
        without = statistics.median(taken for _, taken in pairs)
        exposed = statistics.median(taken - beside for taken, beside in pairs)
        print(json.dumps({"alone": without, "exposed": exposed}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
