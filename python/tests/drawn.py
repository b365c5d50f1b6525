"""Draws what corro.parallelize() is given: a model, batches, an optimizer, a cluster, a plan.

Everything is a function of one seed, the same on every rank and on every machine. Seeds take turns:
plans that keep tensors whole and in memory, those that divide them, and those that offload.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from drawn_modules import MIXERS, Mixing, Twice
from parallel_training import SEED
from recorded_models import Block
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


class Drawn(nn.Module):
    """Tokens to logits, through drawn blocks."""

    def __init__(self, draw: Random) -> None:
        super().__init__()
        heads = draw.choice((1, 2, 3, 4))
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
        if draw.random() < 0.25:
            return Block(width, heads, dropout)
        if draw.random() < 0.1:
            return Mixing(width, Twice(width, self.shared), dropout)
        return Mixing(width, draw.choice(MIXERS)(draw, width, heads), dropout)

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


KINDS = ("whole", "tensor", "offload")
LEVELS = ("optimizer", "gradients", "weights")


@dataclass(frozen=True)
class Case:
    """What one seed draws."""

    seed: int
    kind: str
    """What all plans have: one of KINDS."""
    optimizer: str
    cluster: dict[str, Any]
    plans: list[dict[str, Any]]
    """Pins, of which the planner may refuse all but the last."""
    batches: list[Batch]
    few: bool
    """The optimizer has two groups, and not all parameters."""
    max_norm: float | None
    gathers_behind: int
    """The step behind which the model is gathered; 0: none."""

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

    def clipped_by(self, model: nn.Module, norms: list[float]) -> torch.optim.Optimizer:
        """Returns the optimizer of one process, which clips gradients before each step.

        `norms`: what theirs were is appended.
        """
        optimizer = self.stepped_by(model)

        def clip(*_: object) -> None:
            if self.max_norm is not None:
                norm = nn.utils.clip_grad_norm_(model.parameters(), self.max_norm)
                norms.append(float(norm))

        def forget(*_: object) -> None:
            model.zero_grad()  # Of what the optimizer does not step, too.

        optimizer.register_step_pre_hook(clip)
        optimizer.register_step_post_hook(forget)
        return optimizer


def case_of(seed: int, ranks: int) -> Case:
    draw = Random(-1 - seed)
    kind = KINDS[seed % len(KINDS)] if ranks % 2 == 0 else KINDS[seed % 2 * 2]
    samples, length = draw.randint(max(3, ranks), 9), draw.choice((5, 8, 12))
    sizes = [samples] * 4 + [draw.randint(1, samples)]
    random = torch.Generator().manual_seed(seed)

    def batch(count: int) -> Batch:
        tokens = torch.randint(0, 13, (count, length), generator=random)
        return tokens, tokens.roll(1, 1)

    return Case(
        seed=seed,
        kind=kind,
        optimizer=draw.choice(sorted(OPTIMIZERS)),
        cluster=_cluster(draw, kind, ranks),
        plans=[*(_plan(draw, kind, ranks) for _ in range(4)), _SIMPLEST[kind]],
        batches=[batch(count) for count in sizes],
        few=draw.random() < 0.3,
        max_norm=0.3 if draw.random() < 0.3 else None,
        gathers_behind=draw.choice((0, 0, 1, 2)),
    )


def _plan(draw: Random, kind: str, ranks: int) -> dict[str, Any]:
    tensor = draw.choice(_divisors(ranks)[1:]) if kind == "tensor" else 1
    always = {"tensor": tensor, "pipeline": draw.choice(_divisors(ranks // tensor))}
    if kind == "offload":
        always["offload"] = draw.choice(LEVELS)
    pins = {
        "zero": draw.choice((0, 1, 2, 3)),
        "recompute": draw.choice(("none", "full")),
        "micro_batch": draw.choice((1, 2, 3)),
    }
    if kind == "tensor":
        pins["sequence_parallel"] = draw.random() < 0.7
    return always | {name: pin for name, pin in pins.items() if draw.random() < 0.7}


_SIMPLEST: dict[str, dict[str, Any]] = {
    "whole": {},
    "tensor": {"tensor": 2, "micro_batch": 1},
    "offload": {"offload": "weights"},
}


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _cluster(draw: Random, kind: str, ranks: int) -> dict[str, Any]:
    def device() -> dict[str, Any]:
        peak = draw.choice(("20 GFLOP/s", "80 GFLOP/s"))
        return {"memory": "4 GB", "peak": {"f32": peak}, "memory_bandwidth": "10 GB/s"}

    def link() -> dict[str, str]:
        return {
            "bandwidth": draw.choice(("1 GB/s", "20 GB/s")),
            "latency": draw.choice(("1 us", "50 us")),
        }

    def disk() -> dict[str, Any]:
        to_it = {"bandwidth": "1 GB/s", "latency": "0 s"}
        return {"to_host_memory": to_it, "host_memory": "8 GB"}

    # Tensors are divided over ranks of a host.
    hosts = draw.choice([1, 2] if ranks % (4 if kind == "tensor" else 2) == 0 else [1])
    each = ranks // hosts
    kinds = [f"kind-{number}" for number in range(draw.randint(1, hosts))]
    return {
        "corro_cluster": 1,
        "name": "drawn",
        "devices": {kind: device() for kind in kinds},
        "hosts": [
            {"name": f"host-{number}", "device": kinds[number % len(kinds)], "devices": each}
            | disk()
            | ({"link": link()} if each > 1 else {})
            | ({"network": link()} if hosts > 1 else {})
            for number in range(hosts)
        ],
    }
