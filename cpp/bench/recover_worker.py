"""A rank of the rows `recover`, of corro: recover_job.py says what it does."""

from __future__ import annotations

from typing import Any

from recover_job import STEPS, network, one_step, plain_sgd, say_step

import corro.torch as corro


def main() -> None:
    corro.init()
    model = network()
    optimizer = corro.DistributedOptimizer(plain_sgd(model), model.named_parameters())
    state = corro.elastic.TorchState(model, optimizer, step=0)

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            one_step(state.step, model, optimizer)
            say_step(state.step, corro.size(), model)
            state.step += 1

    train(state)


if __name__ == "__main__":
    main()
