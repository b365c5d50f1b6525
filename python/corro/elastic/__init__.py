"""Training that goes on when ranks come or go: corro run -np 3 --min-np 2 python train.py

    state = corro.elastic.TorchState(model, optimizer, step=0)

    @corro.elastic.run
    def train(state):
        while state.step < 1000:
            loss(state.step).backward()
            optimizer.step()
            state.step += 1

    train(state)

Needs no torch. TorchState, ShardedState and ElasticStreams do; they are loaded when they are asked
for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from corro.elastic._learning_rate import scale_learning_rate
from corro.elastic._policy import Cut, Failure, Growth, Loss, Side, serve_policy
from corro.elastic._run import run
from corro.elastic._sampler import ElasticSampler
from corro.elastic._state import State
from corro.elastic._step import Step

__all__ = [
    "Cut",
    "ElasticSampler",
    "ElasticStreams",
    "Failure",
    "Growth",
    "Loss",
    "ShardedState",
    "Side",
    "State",
    "Step",
    "TorchState",
    "run",
    "scale_learning_rate",
    "serve_policy",
]


def __getattr__(name: str) -> Any:
    if name in ("ElasticStreams", "ShardedState", "TorchState"):
        return getattr(import_module("corro.torch.elastic"), name)
    raise AttributeError(f"module 'corro.elastic' has no attribute {name!r}")
