"""corro.parallelize() with tensor parallelism: ranks compute one sample together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from parallel_training import SEED, adam, alone, batches, gpt, machines, next_token
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import corro
from corro.torch.parallel import Trainer

pytestmark = pytest.mark.usefixtures("job", "one_thread")


@pytest.fixture(autouse=True)
def _pairs(job: None) -> None:  # noqa: ARG001  # It comes first.
    if corro.size() % 2:
        pytest.skip("needs pairs of ranks")


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


def pins_of(tensor: int) -> dict[str, Any]:
    return {"tensor": tensor, "pipeline": 1, "micro_batch": 2}


def plans() -> list[dict[str, Any]]:
    """Tensor parallelism alone, and with data parallelism at levels of ZeRO."""
    return [
        {"tensor": tensor, "pipeline": 1, "zero": zero, "micro_batch": 2, "recompute": recompute}
        for tensor in (2, 4)
        if corro.size() % tensor == 0
        for zero in ((0, 2, 3) if tensor < corro.size() else [0])
        for recompute in (("none", "full") if zero == 0 else ("none",))
    ]


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


def test_every_plan_trains_as_one_process() -> None:
    for pins in plans():
        plain = pins["zero"] == 0 and pins["recompute"] == "none"
        check(attending, next_token, batches(20 if plain else 8), pins)


def test_heads_that_cannot_be_divided_stay_whole() -> None:
    trainer = check(lambda: attending(3), next_token, batches(4), pins_of(2))
    assert "qkv" not in trainer.why
    assert "blocks.*.mlp.0.weight" in trainer.why


def test_a_table_that_is_the_heads_too() -> None:
    trainer = check(lambda: gpt(0.2), next_token, batches(8), pins_of(2))
    assert "along dim 0: embed.weight" in trainer.why


def test_ranks_keep_a_part_and_a_report_says_so() -> None:
    for pins in plans()[:2]:
        model = attending()
        optimizer = adam(model)
        trainer = corro.parallelize(
            model, optimizer, next_token, batches()[0], machines(), pins=pins
        )
        for batch in batches(2):
            trainer.step(batch)
        weight = model.get_parameter("blocks.0.qkv.weight")
        assert weight.isnan().all()
        with pytest.raises(corro.FailedPreconditionError, match=r"call trainer.gather\(\)"):
            model(batches()[0])
        for stage in trainer.report().memory:
            for line in stage:
                assert 0.85 * line.planned < line.measured < 1.15 * line.planned, (pins, line)
        kept = sum(each["exp_avg"].numel() for each in optimizer.state.values())
        whole = sum(each.numel() for each in model.parameters())
        assert kept < whole * 1.15 / pins["tensor"]
        trainer.gather()
        assert not weight.isnan().any()
        trainer.close()
        assert {each["exp_avg"].shape for each in optimizer.state.values()} == {
            each.shape for each in model.parameters()
        }


def test_what_the_user_changes_between_steps_counts() -> None:
    losses = []
    for pins in ({"tensor": 1}, {"tensor": 2}):
        model = attending()
        trainer = corro.parallelize(
            model, adam(model), next_token, batches()[0], machines(), pins=pins_of(**pins)
        )
        losses.append([trainer.step(batches()[0])])
        with torch.no_grad():
            for each in trainer.gather().parameters():
                each.mul_(0.5)
        losses[-1].append(trainer.step(batches()[1]))
        trainer.close()
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


class Odd(nn.Module):
    """A user's checkpoint, functions without rules, a function of autograd, a table of places."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(75, 24), nn.Parameter(torch.randn(16, 24) / 10)
        self.blocks = nn.ModuleList([Block(24, 4, 0.2) for _ in range(2)])
        self.first, self.second = nn.Linear(24, 32), nn.Linear(32, 24)
        self.third, self.fourth = nn.Linear(24, 32, bias=False), nn.Linear(32, 24)
        self.scale = nn.Parameter(torch.ones(16))
        self.head = nn.Linear(24, 75)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) + self.places[: x.shape[1]]
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=bool(number))
        x = x + self.fourth(Doubled.apply(F.relu(self.third(x))))
        x = x + self.second(self.first(x).cumsum(-1))
        hidden = self.third(x).unflatten(-1, (2, 16)) * self.scale
        return self.head(x + self.fourth(F.layer_norm(hidden, (16,), self.scale).flatten(2)))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


def odd() -> nn.Module:
    torch.manual_seed(SEED)
    return Odd()


def test_odd_models() -> None:
    trainer = check(odd, next_token, batches(4), pins_of(2))
    assert "  along dim 0, in 3 blocks: blocks.*.qkv.weight, blocks.*.qkv.bias" in trainer.why
    assert not {"third.weight", "places"} & set(trainer._parts.names)
    assert {"embed.weight", "blocks.1.out.weight"} <= set(trainer._parts.names)


def test_a_users_error_stops_all_ranks() -> None:
    def fails(model: nn.Module, tokens: Tensor) -> Tensor:
        if corro.rank() == 0 and type(tokens) is Tensor:
            raise KeyError("my mistake")
        return next_token(model, tokens)

    model = attending()
    trainer = corro.parallelize(
        model, adam(model), fails, batches()[0], machines(), pins=pins_of(corro.size())
    )
    seen = "my mistake" if corro.rank() == 0 else "another rank has failed.* rank 0 "
    with pytest.raises(KeyError if corro.rank() == 0 else corro.CorroError, match=seen):
        trainer.step(batches()[0])


def test_it_is_planned_where_nothing_else_fits() -> None:
    model = attending()
    whole = 16.0 * sum(each.numel() for each in model.parameters())  # Adam's, in f32.
    given = (model, adam(model), next_token, batches()[0], machines(f"{int(whole * 0.95)} B"))
    with pytest.raises(corro.ResourceExhaustedError):
        corro.parallelize(*given, strategies=("data", "recompute"))
    trainer = corro.parallelize(*given, strategies=("data", "tensor", "recompute"))
    assert trainer.plan.decisions.shape.tensor > 1
    trainer.step(batches()[0])
    trainer.close()


def test_little_that_can_be_divided_is_no_reason_to_do_so() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(24, 75) / 5)

        def forward(self, x: Tensor) -> Tensor:
            return F.one_hot(x, 75).float() @ self.weight.T.flip(1) @ self.weight

    model = Own()
    small = machines(f"{int(16 * model.weight.numel() * 0.95)} B")
    with pytest.raises(corro.ResourceExhaustedError):
        corro.parallelize(
            *(model, adam(model), next_token, batches()[0], small),
            strategies=("data", "tensor", "recompute"),
        )


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_pipeline_of_pairs_gives_the_losses_of_one_process(recompute: str) -> None:
    if corro.size() % 4:
        pytest.skip("needs two pairs of ranks")
    wanted, _ = alone(attending(), next_token, batches())
    model = attending()
    pins = {"tensor": 2, "pipeline": 2, "micro_batch": 2, "recompute": recompute}
    trainer = corro.parallelize(model, adam(model), next_token, batches()[0], machines(), pins=pins)
    losses = [trainer.step(batch) for batch in batches()]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-5, atol=0)
    trainer.close()
