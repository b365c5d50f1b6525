"""What tests of corro.parallelize() and corro.fit() train, and how one process trains it.

A process alone draws what dropout drops as the trainer does, so that both drop the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from recorded_models import GPT
from torch import Tensor, nn

import corro
from corro.torch.parallel import Trainer
from corro.torch.parallel.borders import layers_of
from corro.torch.parallel.randomness import Randomness
from corro.torch.parallel.stage import Stage
from corro.torch.recorder.run import trace_step

SAMPLES, STEPS, SEED = 8, 20, 5
Loss = Callable[[nn.Module, Any], Tensor]


def next_token(model: nn.Module, tokens: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def batches(steps: int = STEPS) -> list[Tensor]:
    """Batches of 8 samples of 16 tokens, but for two that have fewer, and one that is shorter."""
    random = torch.Generator().manual_seed(2)
    sizes = {7: 5, 12: 1}
    return [
        torch.randint(0, 75, (sizes.get(step, SAMPLES), 11 if step == 15 else 17), generator=random)
        for step in range(steps)
    ]


def gpt(dropout: float = 0.0, tied: bool = True) -> nn.Module:
    torch.manual_seed(SEED)
    return GPT(tied=tied, dropout=dropout)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 1e-3)


def machines(memory: str = "4 GB") -> dict[str, object]:
    peak = dict.fromkeys(("f64", "f32", "bf16", "f16"), "80 GFLOP/s")
    core = {"memory": memory, "peak": peak, "memory_bandwidth": "10 GB/s"}
    link = {"bandwidth": "5 GB/s", "latency": "5 us"}
    host = {"name": "localhost", "device": "core", "devices": corro.size(), "link": link}
    return {"corro_cluster": 1, "name": "here", "devices": {"core": core}, "hosts": [host]}


def with_disk(memory: str = "4 GB") -> dict[str, Any]:
    cluster: dict[str, Any] = machines(memory)
    disk = {"bandwidth": "1 GB/s", "latency": 0}
    cluster["hosts"][0].update(to_host_memory=disk, host_memory="8 GB")
    return cluster


def alone(
    model: nn.Module,
    loss: Loss,
    steps: list[Any],
    count: Callable[[Any], int] = len,
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] = adam,
) -> Any:
    """Returns the losses of one process, and its model."""
    optimizer, losses = make_optimizer(model), []
    layers = layers_of(trace_step(model, steps[0], loss))[1]
    whole, randomness = Stage(model, loss, layers, 0, len(layers)), Randomness(SEED)
    for step, batch in enumerate(steps):
        with randomness.of(step, range(count(batch))) as places:
            result = whole.forward(batch, None, places)
            result.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(result.item())
    return losses, model


def check(make: Any, loss: Any, steps: list[Any], pins: dict[str, Any]) -> Trainer:
    """Trains, and compares losses and parameters with those of one process."""
    expected, trained = alone(make(), loss, steps)
    model = make()
    with corro.parallelize(model, adam(model), loss, steps[0], machines(), pins=pins) as trainer:
        losses = [trainer.step(batch) for batch in steps]
    assert losses == pytest.approx(expected, abs=1e-5), pins
    assert trainer.plan.decisions.shape.tensor == pins["tensor"]
    for (name, own), wanted in zip(model.named_parameters(), trained.parameters(), strict=True):
        if not name.endswith("qkv.bias"):  # Its gradients for keys are 0, but for rounding.
            torch.testing.assert_close(own, wanted, atol=1e-4, rtol=1e-3)
    return trainer
