"""Draws what corro.parallelize() is given: a model, batches, an optimizer, a cluster, a plan.

Everything is a function of one seed, the same on every rank and on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from parallel_training import SEED
from recorded_models import Block
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


class Mixing(nn.Module):
    """A residual around any module that keeps a [B, T, D]."""

    def __init__(self, width: int, inner: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm, self.inner, self.dropout = nn.LayerNorm(width), inner, nn.Dropout(dropout)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.inner(self.norm(x))) * self.scale


class Convolving(nn.Module):
    """A convolution over places, of [B, T, D]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.conv(x.transpose(1, 2))).transpose(1, 2)


class Running(nn.Module):
    """A recurrent layer, of [B, T, D]."""

    def __init__(self, width: int, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cells = kind(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.cells(x)[0]
        return result


class Attending(nn.Module):
    """torch's own attention, with a mask made in forward."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.mixer = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        result: Tensor = self.mixer(x, x, x, attn_mask=mask, need_weights=False)[0]
        return result


class Twice(nn.Module):
    """Uses a layer that other modules use, too, and one of its own twice."""

    def __init__(self, width: int, shared: nn.Linear) -> None:
        super().__init__()
        self.shared, self.own = shared, nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.own(F.silu(self.own(self.shared(x))))


class Drawn(nn.Module):
    """Tokens to logits, through drawn blocks."""

    def __init__(self, draw: Random) -> None:
        super().__init__()
        heads = draw.choice((1, 2, 3))
        width = heads * draw.choice((5, 8, 11))
        symbols, self.tied = draw.choice((13, 32)), draw.random() < 0.4
        self.embed = nn.Embedding(symbols, width)
        self.place = nn.Parameter(torch.randn(1, 12, width) * 0.02)
        self.shared = nn.Linear(width, width)
        self.unused = nn.Linear(3, 2) if draw.random() < 0.5 else None
        self.blocks = nn.ModuleList(
            self._block(draw, width, heads) for _ in range(draw.choice((2, 3, 4, 5)))
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)
        if self.tied:
            self.head.weight = self.embed.weight
        if draw.random() < 0.2:
            self.blocks[0].requires_grad_(False)

    def _block(self, draw: Random, width: int, heads: int) -> nn.Module:
        dropout = draw.choice((0.0, 0.1))
        kinds: list[Callable[[], nn.Module]] = [
            lambda: nn.Sequential(
                nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)
            ),
            lambda: Convolving(width),
            lambda: Running(width, draw.choice((nn.GRU, nn.LSTM))),
            lambda: Attending(width, heads),
            lambda: Twice(width, self.shared),
        ]
        if draw.random() < 0.25:
            return Block(width, heads, dropout)
        return Mixing(width, draw.choice(kinds)(), dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.place[:, : tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss(model: nn.Module, batch: Batch) -> Tensor:
    tokens, labels = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.05),
    "momentum": lambda p: torch.optim.SGD(p, 0.02, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, 1e-3),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.1, amsgrad=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 1e-4, momentum=0.5),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 1e-2),
}


@dataclass(frozen=True)
class Case:
    """What one seed draws."""

    seed: int
    optimizer: str
    cluster: dict[str, Any]
    plans: list[dict[str, Any]]
    """Pins, of which the planner may refuse some."""
    batches: list[Batch]
    few: bool
    """The optimizer has two groups, and not all parameters."""

    def model(self) -> nn.Module:
        torch.manual_seed(self.seed)
        model = Drawn(Random(self.seed))
        torch.manual_seed(SEED)  # From which dropout is drawn.
        return model

    def stepped_by(self, model: nn.Module) -> torch.optim.Optimizer:
        own = [each for each in model.parameters() if each.requires_grad]
        make = OPTIMIZERS[self.optimizer]
        if not self.few:
            return make(own)
        return make([{"params": own[1::2], "weight_decay": 0.2}, {"params": own[4::2]}])


def case_of(seed: int, ranks: int) -> Case:
    draw = Random(-1 - seed)
    samples, length = draw.randint(max(3, ranks), 9), draw.choice((5, 8, 12))
    sizes = [samples] * 4 + [draw.randint(1, samples)]
    random = torch.Generator().manual_seed(seed)

    def batch(count: int) -> Batch:
        tokens = torch.randint(0, 13, (count, length), generator=random)
        return tokens, tokens.roll(1, 1)

    return Case(
        seed=seed,
        optimizer=draw.choice(sorted(OPTIMIZERS)),
        cluster=_cluster(draw, ranks),
        plans=[_plan(draw, ranks) for _ in range(4)],
        batches=[batch(count) for count in sizes],
        few=draw.random() < 0.3,
    )


def _plan(draw: Random, ranks: int) -> dict[str, Any]:
    stages = draw.choice([each for each in range(1, ranks + 1) if ranks % each == 0])
    pins = {
        "pipeline": stages,
        "zero": draw.choice((0, 1, 2, 3)),
        "recompute": draw.choice(("none", "full")),
        "micro_batch": draw.choice((1, 2, 3)),
    }
    return {name: pin for name, pin in pins.items() if draw.random() < 0.8}


def _cluster(draw: Random, ranks: int) -> dict[str, Any]:
    def device() -> dict[str, Any]:
        peak = draw.choice(("20 GFLOP/s", "80 GFLOP/s"))
        return {"memory": "4 GB", "peak": {"f32": peak}, "memory_bandwidth": "10 GB/s"}

    def link() -> dict[str, str]:
        return {
            "bandwidth": draw.choice(("1 GB/s", "20 GB/s")),
            "latency": draw.choice(("1 us", "50 us")),
        }

    hosts = draw.choice([each for each in (1, 2) if ranks % each == 0])
    each = ranks // hosts
    kinds = [f"kind-{number}" for number in range(draw.randint(1, hosts))]
    return {
        "corro_cluster": 1,
        "name": "drawn",
        "devices": {kind: device() for kind in kinds},
        "hosts": [
            {"name": f"host-{number}", "device": kinds[number % len(kinds)], "devices": each}
            | ({"link": link()} if each > 1 else {})
            | ({"network": link()} if hosts > 1 else {})
            for number in range(hosts)
        ],
    }
