"""A replica group of the rows `recover`, of torchft: one rank.

The loop and the timeouts are those of its README and its example, train_ddp.py.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

from recover_job import FOLDER, RANK, STEPS, network, one_step, plain_sgd, say_step
from torch import nn
from torchft import Manager, Optimizer, ProcessGroupGloo


class AveragingOptimizer(Optimizer):
    """torchft's optimizer, with the mean of all gradients.

    torchft 0.2.0 has a DistributedDataParallel, too, which ends in an AssertionError of its own in
    every survivor where Gloo finds that a rank is lost.
    """

    def __init__(self, manager: Manager, model: nn.Module) -> None:
        super().__init__(manager, plain_sgd(model))
        self.parameters = list(model.parameters())

    def step(self, closure: object = None) -> None:
        works = [self.manager.allreduce(each.grad) for each in self.parameters]
        for work in works:
            work.wait()
        super().step(closure)


def meet() -> None:
    """Waits until the first groups are there: they would begin without each other."""
    (FOLDER / f"here-{RANK}").touch()
    while len(list(FOLDER.glob("here-*"))) < int(os.environ["NUM_REPLICA_GROUPS"]):
        time.sleep(0.01)


def main() -> None:
    model = network()

    def load_state_dict(state: Any) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    def state_dict() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    group = ProcessGroupGloo(timeout=timedelta(seconds=5))
    manager = Manager(
        pg=group,
        min_replica_size=2,
        load_state_dict=load_state_dict,
        state_dict=state_dict,
        replica_id=f"recover_{RANK}",
        timeout=timedelta(seconds=30),
    )
    optimizer = AveragingOptimizer(manager, model)
    meet()
    while manager.current_step() < STEPS:
        before = manager.current_step()
        one_step(before, model, optimizer)
        if manager.current_step() > before:  # Not where a rank was lost in it.
            say_step(manager.current_step() - 1, group.size(), model)
    manager.shutdown()


if __name__ == "__main__":
    main()
