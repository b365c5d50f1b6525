"""corro.parallelize() with tensor parallelism: ranks compute one sample together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from parallel_training import SEED, adam, alone, batches, gpt, machines, next_token
from torch import Tensor, nn

import corro
from corro.torch.parallel import Trainer

pytestmark = pytest.mark.usefixtures("job", "one_thread")


class Block(nn.Module):
    """As transformers are written: heads by view and transpose, dropout of attention's weights."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape
        q, k, v = (
            each.view(*size[:2], self.heads, -1).transpose(1, 2)
            for each in self.qkv(self.norm(x)).split(size[-1], dim=2)
        )
        p = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        x = x + self.out(mixed.transpose(1, 2).reshape(size))
        return x + self.mlp(x)


class Attending(nn.Module):
    def __init__(self, heads: int = 4, dropout: float = 0.2) -> None:
        super().__init__()
        self.embed = nn.Embedding(75, 24)
        self.blocks = nn.Sequential(*[Block(24, heads, dropout) for _ in range(2)])
        self.head = nn.Linear(24, 75)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.embed(x)))


def attending(heads: int = 4) -> nn.Module:
    torch.manual_seed(SEED)
    return Attending(heads)


def plans() -> list[dict[str, Any]]:
    """Tensor parallelism alone, and with data parallelism at each level of ZeRO."""
    return [
        {"tensor": tensor, "pipeline": 1, "zero": zero, "micro_batch": 2, "recompute": recompute}
        for tensor in (2, 4)
        if corro.size() % tensor == 0
        for zero in (range(4) if tensor < corro.size() else [0])
        for recompute in (("none", "full") if zero == 0 else ("none",))
    ]


def check(make: Any, loss: Any, steps: list[Any], pins: dict[str, Any], **options: Any) -> Trainer:
    """Trains, and compares losses and parameters with those of one process."""
    count = options.pop("count", len)
    expected, trained = alone(make(), loss, steps, count)
    model = make()
    with corro.parallelize(
        model, adam(model), loss, steps[0], machines(), pins=pins, **options
    ) as trainer:
        losses = [trainer.step(batch) for batch in steps]
    assert losses == pytest.approx(expected, abs=1e-5), pins
    assert trainer.plan.decisions.shape.tensor == pins["tensor"]
    for (name, own), wanted in zip(model.named_parameters(), trained.parameters(), strict=True):
        if not name.endswith("qkv.bias"):  # Its gradients for keys are 0, but for rounding.
            torch.testing.assert_close(own, wanted, atol=1e-4, rtol=1e-3)
    return trainer


@pytest.mark.parametrize("heads", [4, 3])
def test_every_plan_trains_as_one_process(heads: int) -> None:
    """Three heads are not cut in two: there each rank computes all of them."""
    for pins in plans():
        check(lambda: attending(heads), next_token, batches(), pins)


def test_a_table_that_is_the_heads_too() -> None:
    for pins in plans()[:1]:
        check(lambda: gpt(0.2), next_token, batches(), pins)
