"""corro.parallelize() with tensor parallelism: ranks compute one sample together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from parallel_training import SAMPLES, SEED, adam, alone, batches, check, gpt, machines, next_token
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import corro
from corro._context import world
from corro.torch.parallel.tensor import Axis, Division
from corro.torch.parallel.tensor.division import (
    enter,
    gather,
    join,
    scatter,
    summand,
    summed,
    take,
)

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


def in_one_micro_batch(tensor: int) -> dict[str, Any]:
    return {**pins_of(tensor), "micro_batch": SAMPLES * tensor // corro.size()}


def plans() -> list[dict[str, Any]]:
    """Tensor parallelism alone, and with data parallelism at levels of ZeRO."""
    return [
        {**pins_of(tensor), "zero": zero, "recompute": recompute}
        for tensor in (2, 4)
        if corro.size() % tensor == 0
        for zero in ((0, 2, 3) if tensor < corro.size() else [0])
        for recompute in (("none", "full") if zero == 0 else ("none",))
    ]


def test_every_plan_trains_as_one_process() -> None:
    for pins in plans():
        plain = pins["zero"] == 0 and pins["recompute"] == "none"
        trainer = check(attending, next_token, batches(20 if plain else 8), pins)
        assert "along tokens: activations between products" in trainer.why


def test_heads_that_cannot_be_divided_stay_whole() -> None:
    trainer = check(lambda: attending(3), next_token, batches(4), pins_of(2))
    assert "activations between products, since" in trainer.why
    assert "qkv" not in trainer.why
    assert "blocks.*.mlp.0.weight" in trainer.why


def test_a_table_that_is_the_heads_too() -> None:
    pins = {**pins_of(2), "sequence_parallel": False}
    trainer = check(lambda: gpt(0.2), next_token, batches(8), pins)
    assert "along dim 0: embed.weight" in trainer.why
    assert "activations" not in trainer.why


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
    assert "activations between products, since CheckpointFunction: a function" in trainer.why
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


class Flipped(nn.Module):
    """Cannot be divided: `flip` has no rule."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.flip(1)


def classes(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


@pytest.mark.parametrize("divisible", [True, False])
def test_it_is_planned_where_steps_are_shorter_by_what_can_be_divided(divisible: bool) -> None:
    width = 1024
    inner = [] if divisible else [Flipped(width)]
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), *inner) for _ in range(3)))
    batch = torch.randn(16, width), torch.arange(16)
    with corro.parallelize(model, adam(model), classes, batch, machines()) as trainer:
        shape = trainer.plan.decisions.shape
        assert (shape.tensor > 1) == divisible
        trainer.step(batch)


def test_tokens_are_divided_for_memory_alone() -> None:
    def squares(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).square().mean()

    layers = (nn.Sequential(nn.Linear(1024, 4096), nn.Linear(4096, 1024)) for _ in range(2))
    model, batch = nn.Sequential(*layers), torch.randn(4, 2, 1024)
    with corro.parallelize(model, adam(model), squares, batch, machines()) as trainer:
        shape = trainer.plan.decisions.shape
        assert shape.tensor > 1
        assert not shape.sequence_parallel


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


# --- Tokens ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "blocks"), [(9, 1), (24, 3)])
def test_maps_and_their_gradients(tokens: int, blocks: int) -> None:
    random = torch.Generator().manual_seed(1)
    drawn = torch.randn(corro.size(), 2, tokens, 3, generator=random)
    own, whole, total = drawn[corro.rank()], drawn[0], drawn.sum(0)
    axis = Axis(corro.rank(), corro.size(), world())
    division = Division(axis, 1, tokens, blocks)
    part, part_of_total = division.part(whole), division.part(total)
    maps: dict[str, tuple[Callable[[Tensor], Tensor], Tensor, Tensor, Tensor, Tensor]] = {
        "enter": (lambda x: enter(x, axis), whole, whole, own, total),
        "sum": (lambda x: summed(x, axis), own, total, whole, whole),
        "take": (lambda x: take(x, division), whole, part, part, whole),
        "join": (lambda x: join(x, division), part, whole, whole, part),
        "gather": (lambda x: gather(x, division), part, whole, own, part_of_total),
        "scatter": (lambda x: scatter(x, division), own, part_of_total, part, whole),
        "summand": (lambda x: summed(summand(x, axis), axis), whole, whole, whole, whole),
    }
    for name, (function, given, wanted, gradient, wanted_gradient) in maps.items():
        x = given.clone().requires_grad_()
        y = function(x)
        y.backward(gradient)
        torch.testing.assert_close(y, wanted, msg=name)
        torch.testing.assert_close(x.grad, wanted_gradient, msg=name)


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Rotating(nn.Module):
    """As Llama is written: RMS norms, positions that rotate, gates, fewer keys than queries."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(75, 24)
        self.norms = nn.ModuleList([RMSNorm(24) for _ in range(3)])
        self.q, self.k, self.v, self.o = (
            nn.Linear(24, width, bias=False) for width in (24, 12, 12, 24)
        )
        self.gate, self.up = nn.Linear(24, 40, bias=False), nn.Linear(24, 40, bias=False)
        self.down, self.head = nn.Linear(40, 24, bias=False), nn.Linear(24, 75, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        y = self.norms[0](x)
        q, k, v = (
            each(y).unflatten(-1, (-1, 6)).transpose(1, 2) for each in (self.q, self.k, self.v)
        )
        angles = torch.arange(x.shape[1])[:, None] * torch.tensor([1, 0.1, 0.01])
        cos, sin = (each.repeat(1, 2) for each in (angles.cos(), angles.sin()))
        q, k = (
            each * cos + torch.cat([-each[..., 3:], each[..., :3]], -1) * sin for each in (q, k)
        )
        k, v = (each.repeat_interleave(2, 1) for each in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.o(y.transpose(1, 2).flatten(2)), 0.1)
        y = self.norms[1](x)
        x = x + F.dropout(self.down(F.silu(self.gate(y)) * self.up(y)), 0.1)
        return self.head(self.norms[2](x))


def rotating() -> nn.Module:
    torch.manual_seed(SEED)
    return Rotating()


def test_tokens_that_cannot_be_divided_equally_or_not_at_all() -> None:
    steps = [each[:, :tokens] for each, tokens in zip(batches(4), (12, 4, 2, 3), strict=True)]
    trainer = check(rotating, next_token, steps, in_one_micro_batch(2))
    assert "along tokens: activations between products" in trainer.why


def test_mixed_precision_with_tokens_divided() -> None:
    def loss(model: nn.Module, tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return next_token(model, tokens)

    losses = []
    for tensor in (1, 2):
        model = rotating()
        pins = in_one_micro_batch(tensor)
        with corro.parallelize(
            model, adam(model), loss, batches()[0], machines(), pins=pins
        ) as trainer:
            losses.append([trainer.step(batch) for batch in batches(3)])
    assert losses[0] == pytest.approx(losses[1], rel=4e-3)


def test_ranks_keep_a_part_of_what_lies_between_products() -> None:
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    def forget(parameters: Iterable[Tensor]) -> None:
        for each in parameters:
            kept.pop(each.untyped_storage().data_ptr(), None)

    def loss(model: nn.Module, tokens: Tensor) -> Tensor:
        if type(tokens) is not Tensor:
            return model(tokens).pow(2).mean()
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda each: each):
            return model(tokens).pow(2).mean()

    def made() -> nn.Module:
        return nn.Sequential(nn.Embedding(75, 24), *[Block(24, 4, 0.0) for _ in range(3)])

    bytes_of = {}
    for tokens_divided in (False, True):
        model = made()
        pins = {**in_one_micro_batch(2), "sequence_parallel": tokens_divided}
        with corro.parallelize(
            model, adam(model), loss, batches()[0], machines(), pins=pins
        ) as trainer:
            trainer.step(batches()[0])
            forget((*model.parameters(), *trainer._parts.parts))
            bytes_of[tokens_divided] = sum(kept.values())
    model = made()
    loss(model, batches()[0][: SAMPLES * 2 // corro.size()])
    forget(model.parameters())
    whole = sum(kept.values())
    assert bytes_of[True] < 0.52 * whole < 0.6 * whole < bytes_of[False]
