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
from corro.planned import Shape
from corro.torch.parallel.tensor.choice import choices_of

pytestmark = pytest.mark.usefixtures("job", "one_thread")

COUNT, CHOSEN, WIDTH = 5, 2, 24


@pytest.fixture(autouse=True)
def _pairs(job: None) -> None:  # noqa: ARG001  # It comes first.
    if corro.size() % 2:
        pytest.skip("needs pairs of ranks")


@corro.torch.parallel.experts
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
        with torch.no_grad():
            chosen = F.one_hot(top_k_index, self.num_experts).sum((0, 1)).nonzero()
        for expert in chosen[:, 0]:  # Without any, nothing leads to tokens and parameters.
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


@pytest.mark.parametrize("cuts_tokens", [True, False])
def test_experts_without_tokens_decay_as_in_one_process(cuts_tokens: bool) -> None:
    """Those of the last rank get none; their gradients are zeros, not missing."""
    pins = {"tensor": 2, "pipeline": 1, "sequence_parallel": cuts_tokens}
    check(lambda: mixture(allowed=2), next_token, batches(4), pins)


def test_a_bank_that_nobody_has_marked_stays_whole() -> None:
    class Other(Experts):
        pass

    def made() -> nn.Module:
        model = mixture()
        for each in model.modules():
            if isinstance(each, Experts):
                each.__class__ = Other
        return model

    trainer = check(made, next_token, batches(2), {"tensor": 2, "pipeline": 1})
    assert "experts" not in trainer.why


def test_experts_that_draw_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Experts.forward

    def drawing(self: Experts, *args: Tensor) -> Tensor:
        return F.dropout(own(self, *args), 0.1)

    def forward(
        self: Experts, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor
    ) -> Tensor:
        return drawing(self, hidden_states, top_k_index, top_k_weights)

    monkeypatch.setattr(Experts, "forward", forward)
    model = mixture()
    trainer = corro.parallelize(
        *(model, adam(model), next_token, batches()[0], machines()), pins={"tensor": 2}
    )
    with pytest.raises(corro.CorroError, match=r"draw random numbers|another rank has failed"):
        trainer.step(batches()[0])


def test_fewer_experts_than_ranks_stay_whole() -> None:
    model = mixture()
    names = [name for name, _ in model.named_parameters()]
    for ranks, are_divided in ((4, True), (8, False)):
        shape = Shape(tensor=ranks)
        choices = choices_of(model, next_token, batches()[0], names, shape)
        assert ("1.experts.up" in choices.parameters) == are_divided
