"""What the ranks of the rows `recover` do, whoever started them and whatever joins them.

    recover_worker.py FOLDER STEPS [kill STEP | stop STEP]

Data parallel, a linear layer of 1000 x 1000, plain SGD. Each process has a file in FOLDER, with a
line for each step that it has applied: nanoseconds on the clock of all processes, the step, the
number of ranks, and a norm of the model. The victim is rank 1 of those that began: it says when it
sends itself the signal.
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

FOLDER, STEPS = Path(sys.argv[1]), int(sys.argv[2])
FATE, FATAL = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", -1)
NAMES = ("CORRO_RANK", "REPLICA_GROUP_ID", "RANK")  # The last one is torchft's ranks', too.
RANK = int(next(os.environ[name] for name in NAMES if name in os.environ))
PAUSE = 0.01  # Of a step, besides its computation: as the work of a larger model.

log = (FOLDER / f"{os.getpid()}.txt").open("a", buffering=1)


def say(word: str, *rest: object) -> None:
    print(word, time.monotonic_ns(), *rest, file=log)


def say_step(step: int, size: int, model: nn.Module) -> None:
    """Each step of SGD makes the norm of the first row less: outputs are drawn to zero."""
    row = next(model.parameters())[0].detach()
    say("step", step, size, row.square().sum().item())


def meet_fate(step: int) -> None:
    """Once: who comes in its place lives."""
    mark = FOLDER / "fate"
    if step != FATAL or RANK != 1 or mark.exists():
        return
    mark.touch()
    say("fate", step)
    os.kill(os.getpid(), signal.SIGKILL if FATE == "kill" else signal.SIGSTOP)


def network() -> nn.Module:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return nn.Linear(1000, 1000)


def plain_sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def one_step(step: int, model: nn.Module, optimizer: Any) -> None:
    x = torch.randn(8, 1000)
    time.sleep(PAUSE)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    meet_fate(step)
    loss.backward()
    optimizer.step()
