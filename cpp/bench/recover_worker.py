"""A rank of the rows `recover`: trains until it has done STEPS steps, and says when each was done.

    recover_worker.py FOLDER STEPS [kill STEP | stop STEP]

Data parallel, a linear layer of 1000 x 1000, plain SGD. Each process has a file in FOLDER, with a
line for each step that it has applied: nanoseconds on the clock of all processes, the step, the
number of ranks. The victim is rank 1 of those that began: it says when it sends itself the signal.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import corro.torch as corro

FOLDER, STEPS = Path(sys.argv[1]), int(sys.argv[2])
FATE, FATAL = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", -1)
RANK = int(os.environ["CORRO_RANK"])
PAUSE = 0.01  # Of a step, besides its computation: as the work of a larger model.

log = (FOLDER / f"{os.getpid()}.txt").open("a", buffering=1)


def say(word: str, *rest: object) -> None:
    print(word, time.monotonic_ns(), *rest, file=log)


def meet_fate(step: int) -> None:
    """Once: who comes in its place lives."""
    mark = FOLDER / "fate"
    if step != FATAL or RANK != 1 or mark.exists():
        return
    mark.touch()
    say("fate", step)
    os.kill(os.getpid(), signal.SIGKILL if FATE == "kill" else signal.SIGSTOP)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(1000, 1000)


def one_step(step: int, model: nn.Module, optimizer: Any) -> None:
    x = torch.randn(8, 1000)
    time.sleep(PAUSE)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    meet_fate(step)
    loss.backward()
    optimizer.step()


def main() -> None:
    corro.init()
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = corro.DistributedOptimizer(sgd, model.named_parameters())
    state = corro.elastic.TorchState(model, optimizer, step=0)

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            one_step(state.step, model, optimizer)
            say("step", state.step, corro.size())
            state.step += 1

    train(state)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
