"""A rank of the rows `recover`, of torchrun, which starts all ranks again where one is lost.

It goes on from the checkpoint that rank 0 writes after each step, as torchrun's documentation has
it.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from recover_job import FOLDER, RANK, STEPS, network, one_step, plain_sgd, say_step
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT = FOLDER / "checkpoint.pt"


def save(step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Whole or not at all: a rank may be ended at any time."""
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    part = CHECKPOINT.with_suffix(".part")
    torch.save(state, part)
    os.replace(part, CHECKPOINT)


def load(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Returns the next step."""
    if not CHECKPOINT.exists():
        return 0
    state = torch.load(CHECKPOINT)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"]) + 1


def main() -> None:
    dist.init_process_group("gloo")
    model = network()
    optimizer = plain_sgd(model)
    parallel = DistributedDataParallel(model)
    for step in range(load(model, optimizer), STEPS):
        one_step(step, parallel, optimizer)
        say_step(step, dist.get_world_size(), model)
        if RANK == 0:
            save(step, model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
