"""One rank of soak.py: trains until it is told that it is enough, and writes down what it does.

    soak_worker.py FOLDER SAMPLES

Each process has a file in FOLDER, whose lines soak.py reads: which samples it takes in a step,
before its gradients can reach anybody, and that the step was applied. The file `enough` there ends
it, at the end of a data epoch.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

import corro.torch as corro
from corro import _context

FOLDER, SAMPLES = Path(sys.argv[1]), int(sys.argv[2])
PAUSE = 0.01  # Of a step, besides its computation: as the work of a larger model.
log = (FOLDER / f"{os.environ['CORRO_MEMBER_UUID']}.txt").open("a", buffering=1)


def say(*words: object) -> None:
    print(*words, file=log)


def epoch() -> int:
    member = _context.membership()
    assert member is not None
    return member.epoch


def train_step(step: Any, state: Any, model: torch.nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad()
    parts = list(step)
    taken = [sample for indices, weight in parts if weight > 0 for sample in indices]
    total = sum(weight for _, weight in parts)
    place = (state.step, epoch(), corro.rank(), corro.size(), state.data_epoch)
    say("takes", *place, total, *taken)
    time.sleep(PAUSE)
    for indices, weight in parts:
        x = torch.tensor(indices, dtype=torch.float32).unsqueeze(1) / SAMPLES
        ((model(x) - x).square().mean() * weight).backward()
    optimizer.step()
    say("applied", state.step, epoch(), time.monotonic_ns())
    step.record()
    state.step += 1


def main() -> None:
    corro.init()
    torch.manual_seed(1)
    model = torch.nn.Linear(1, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = corro.DistributedOptimizer(sgd, model.named_parameters())
    sampler = corro.elastic.ElasticSampler(range(SAMPLES), batch_size=8)
    state = corro.elastic.TorchState(model, optimizer, sampler=sampler, data_epoch=0, step=0)

    @corro.elastic.run
    def train(state: Any) -> None:
        while not corro.broadcast_object((FOLDER / "enough").exists()):
            sampler.set_epoch(state.data_epoch)
            for step in sampler.steps():
                train_step(step, state, model, optimizer)
            state.data_epoch += 1

    train(state)
    say("ends", state.step, state.data_epoch)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
