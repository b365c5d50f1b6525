"""A rank that saves and loads checkpoints: checkpoint_worker.py FOLDER FROM UNTIL [RANK STEP]...

Goes on from the newest checkpoint, which has to be of step FROM (-1: any), and trains until step
UNTIL with a checkpoint every second step. Each RANK kills itself after it has begun that of its
STEP. Prints the step and a digest of what it has loaded, and of what it has in the end.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import without_compiler
from training import network, sgd

import corro.torch as corro
from corro.checkpoint import Checkpointer

without_compiler.install()


def digest(state: Any) -> str:
    """Of the model, with which all ranks have to agree."""
    found = hashlib.sha256()
    for value in state.model.state_dict().values():
        found.update(value.numpy().tobytes())
    return found.hexdigest()[:16]


def tell(text: str) -> None:
    os.write(1, f"rank {corro.rank()} of {corro.size()}: {text}\n".encode())


def main() -> None:
    folder, expected, until = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    last_steps = dict(zip(sys.argv[4::2], map(int, sys.argv[5::2]), strict=True))
    corro.init()
    model = network()
    optimizer = corro.DistributedOptimizer(sgd(model), model.named_parameters())
    state = corro.elastic.TorchState(model, optimizer, step=0)
    checkpointer = Checkpointer(folder, every=2)
    loaded = checkpointer.load(state)
    tell(f"loaded {loaded} {digest(state)}")
    assert expected in (-1, loaded or 0), f"{loaded}, not {expected}"
    last = last_steps.get(str(corro.rank()))

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < until:
            state.optimizer.zero_grad()
            state.model(torch.full((2, 6), 1.0 + state.step)).square().mean().backward()
            state.optimizer.step()
            state.step += 1
            checkpointer.save(state)
            if state.step == last:
                if os.environ.get("LEAVES_A_CHILD") and os.fork() == 0:
                    time.sleep(60)
                os.kill(os.getpid(), signal.SIGKILL)
            checkpointer.wait()

    train(state)
    tell(f"ended {state.step} {digest(state)} skipped {checkpointer.skipped}")


main()
