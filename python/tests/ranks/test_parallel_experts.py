"""corro.parallelize() with banks of experts, of which each rank of tensor parallelism has some."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from parallel_training import SEED, adam, batches, check, machines, next_token
from torch import Tensor, nn

import corro
from corro._objects import allgather_object

pytestmark = pytest.mark.usefixtures("job", "one_thread")

COUNT, CHOSEN, WIDTH = 5, 2, 24


@pytest.fixture(autouse=True)
def _pairs(job: None) -> None:  # noqa: ARG001  # It comes first.
    if corro.size() % 2:
        pytest.skip("needs pairs of ranks")


class Experts(nn.Module):
    """A bank as transformers has them, which counts what it is given."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.num_experts = count
        self.up = nn.Parameter(torch.randn(count, 2 * WIDTH, WIDTH) / 5)
        self.down = nn.Parameter(torch.randn(count, WIDTH, 2 * WIDTH) / 5)
        self.seen: dict[str, int] = {}

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        self.seen = {"pairs": top_k_index.numel(), "experts": len(self.up)}
        out = torch.zeros_like(hidden_states)
        for expert in range(self.num_experts):
            rows, places = torch.where(top_k_index == expert)
            inner = F.gelu(hidden_states[rows] @ self.up[expert].t())
            made = inner @ self.down[expert].t() * top_k_weights[rows, places, None]
            out.index_add_(0, rows, made)
        return out


class Mixture(nn.Module):
    def __init__(self, count: int, allowed: int) -> None:
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, count)
        self.experts = Experts(count)
        self.register_buffer("refused", torch.arange(count) >= allowed)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(x).view(-1, WIDTH)
        logits = self.gate(tokens).masked_fill(self.refused, -torch.inf)
        weights, index = torch.softmax(logits, -1).topk(min(CHOSEN, logits.shape[-1]))
        out: Tensor = x + self.experts(tokens, index, weights).view(x.shape)
        return out


def mixture(count: int = COUNT, allowed: int = COUNT) -> nn.Module:
    torch.manual_seed(SEED)
    return nn.Sequential(
        nn.Embedding(75, WIDTH), *(Mixture(count, allowed) for _ in range(2)), nn.Linear(WIDTH, 75)
    )


@pytest.mark.parametrize(
    "more",
    [
        {"zero": 0},
        {"zero": 0, "recompute": "full"},
        {"zero": 0, "sequence_parallel": False},
        {"zero": 0, "pipeline": 2},
        {"zero": 3},
    ],
    ids=["plain", "recompute", "whole tokens", "pipeline", "ZeRO 3"],
)
def test_each_plan_trains_as_one_process(more: dict[str, Any]) -> None:
    pins = {"tensor": 2, "pipeline": 1, "micro_batch": 2, **more}
    if pins["pipeline"] * 2 > corro.size():
        pytest.skip("needs more ranks")
    trainer = check(mixture, next_token, batches(8), pins)
    assert "along dim 0" in trainer.why
    assert "experts.up, " in trainer.why


def test_each_pair_of_token_and_expert_is_computed_by_one_rank() -> None:
    model = mixture()
    with corro.parallelize(
        *(model, adam(model), next_token, batches()[0], machines()),
        pins={"tensor": corro.size(), "micro_batch": 8},
    ) as trainer:
        trainer.step(batches()[0])
    banks = [each for each in model.modules() if isinstance(each, Experts)]
    for seen in zip(*allgather_object([each.seen for each in banks]), strict=True):
        assert sum(each["pairs"] for each in seen) == 8 * 16 * CHOSEN
        assert sum(each["experts"] for each in seen) == COUNT
    assert all(each.num_experts == len(each.up) == COUNT for each in banks)


def test_experts_without_tokens_decay_as_in_one_process() -> None:
    """Those of the last rank get none; their gradients are zeros, not missing."""
    check(lambda: mixture(allowed=2), next_token, batches(4), {"tensor": 2, "pipeline": 1})


def test_fewer_experts_than_ranks_stay_whole() -> None:
    trainer = check(lambda: mixture(1), next_token, batches(2), {"tensor": 2, "pipeline": 1})
    assert "experts" not in trainer.why
