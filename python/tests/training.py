"""A small network, its batches and its optimizers: what tests of training share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import corro.torch as corro

GLOBAL_BATCH = 120  # Up to six ranks have equal parts of it, and of each half.
SAMPLES = 100  # Of examples().


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(step)
    x = torch.randn(GLOBAL_BATCH, 6, generator=random)
    return x, x.sum(1, keepdim=True).sin()


def examples() -> tuple[torch.Tensor, torch.Tensor]:
    """A data set: x: [SAMPLES, 6] and y: [SAMPLES, 1], float32."""
    x = torch.randn(SAMPLES, 6, generator=torch.Generator().manual_seed(0))
    return x, x.sum(1, keepdim=True).sin()


def mine(x: torch.Tensor) -> torch.Tensor:
    return x[corro.rank() :: corro.size()]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def losses(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, shared: bool
) -> list[float]:
    history = []
    for step in range(steps):
        x, y = batch(step)
        if shared:
            x, y = mine(x), mine(y)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        history.append(corro.allreduce(loss.detach()).item() if shared else loss.item())
    return history


def assert_same_on_all_ranks(model: nn.Module) -> None:
    """Fails unless all ranks have the same weights, bit for bit."""
    for param in model.parameters():
        assert torch.equal(corro.broadcast(param.detach()), param), "replicas differ"
