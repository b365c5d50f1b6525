"""picks_torch.py MODEL STEPS: the plan that is picked for a model on two ranks, among all plans.

    corro run -np 2 --show 0 python cpp/bench/picks_torch.py mlp 5

The pick is what corro.parallelize() plans for the ranks as it has measured them; the others are
plans by pins: data parallelism with each level of ZeRO, two stages, tensor parallelism, with
micro-batches of each size that there can be. None computes anything again.

Rank 0 prints a line of JSON for each: {"plan": "data 2, ...", "us": 1.0, "picked": false}, with the
median of the slowest rank's steps.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from parallel_torch import adam, gpt
from torch import Tensor, nn

import corro

SAMPLES, WARM_UP = 16, 2
Loss = Callable[[nn.Module, Any], Tensor]


def chain(width: int, layers: int) -> nn.Module:
    blocks = (nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers))
    return nn.Sequential(*blocks, nn.Linear(width, 10))


def convolutions() -> nn.Module:
    widths = [3, 32, 64, 64, 64, 128]
    blocks = [
        nn.Sequential(nn.Conv2d(a, b, 3, 2 if b == 128 else 1, 1), nn.GroupNorm(4, b), nn.ReLU())
        for a, b in pairwise(widths)
    ]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.TransformerEncoderLayer(256, 4, 1024, 0.0, batch_first=True) for _ in range(6))
        )
        self.head = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layers(x).mean(1))
        return out


class Words(nn.Module):
    """Most of it is a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.inner = nn.Embedding(16384, 256), chain(256, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(self.table(x).mean(1))
        return out


def classes(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def tokens(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[0].flatten())


def of(*shape: int) -> tuple[Tensor, Tensor]:
    """Floats of this shape, or, of one dim, tokens."""
    drawn = torch.randint(0, 1024, (SAMPLES, *shape)) if len(shape) == 1 else None
    return torch.randn(SAMPLES, *shape) if drawn is None else drawn, torch.arange(SAMPLES) % 10


MODELS: dict[str, tuple[Callable[[], nn.Module], Loss, Callable[[], Any]]] = {
    "mlp": (lambda: chain(512, 12), classes, lambda: (torch.randn(SAMPLES, 512), of(1)[1])),
    "wide": (lambda: chain(2048, 3), classes, lambda: (torch.randn(SAMPLES, 2048), of(1)[1])),
    "gpt": (gpt, tokens, lambda: of(64)),
    "convolutions": (convolutions, classes, lambda: of(3, 32, 32)),
    "encoder": (Encoder, classes, lambda: of(64, 256)),
    "words": (Words, classes, lambda: of(32)),
}


def plans() -> list[dict[str, Any]]:
    halves = [{"data": 2, "pipeline": 1, "micro_batch": each} for each in (2, 4, 8)]
    stages = [{"data": 1, "pipeline": 2, "zero": 0, "micro_batch": each} for each in (1, 2, 4, 8)]
    return [
        *({**each, "zero": zero} for zero in (0, 1, 2, 3) for each in halves),
        *stages,
        {"tensor": 2, "pipeline": 1, "zero": 0, "micro_batch": SAMPLES},
    ]


def measured(name: str, pins: dict[str, Any], steps: int) -> dict[str, Any]:
    """Trains by a plan; returns what it is, and what a step takes."""
    make, loss, batch_of = MODELS[name]
    torch.manual_seed(0)
    model, batch = make(), batch_of()
    pins = {**pins, "recompute": "none"}
    with corro.parallelize(model, adam(model), loss, batch, pins=pins, replan=False) as trainer:
        taken = []
        for _ in range(WARM_UP + steps):
            corro.barrier()
            begin = time.perf_counter()
            trainer.step(batch)
            taken.append(max(corro.allgather_object(time.perf_counter() - begin)))
        shape = trainer.plan.decisions.shape
    said = f"data {shape.data}, pipeline {shape.pipeline}, tensor {shape.tensor}, ZeRO {shape.zero}"
    said += f", micro-batches of {shape.micro_batch}"
    return {"plan": said, "us": statistics.median(taken[WARM_UP:]) * 1e6}


def main() -> None:
    name, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    corro.init()
    pick = measured(name, {}, steps)
    lines = {pick["plan"]: {**pick, "picked": True}}
    for pins in plans():
        try:
            line = measured(name, pins, steps)
        except corro.InvalidArgumentError:
            continue  # The model cannot be cut so.
        if line["plan"] in lines:  # Once more what was picked: the better one counts.
            line["us"] = min(line["us"], lines[line["plan"]]["us"])
        lines[line["plan"]] = {"picked": line["plan"] == pick["plan"], **line}
    if corro.rank() == 0:
        for line in lines.values():
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
