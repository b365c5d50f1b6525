"""Rules of torch's functions on split tensors: each rank's part is that of the whole result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import corro
from corro.planned import Shape
from corro.torch.parallel import Call, Split, rule, slots
from corro.torch.parallel.tensor import Axis, Division
from corro.torch.parallel.tensor.choice import Choices, choices_of, described
from corro.torch.parallel.tensor.split import autograd_functions_get_wholes
from corro.torch.parallel.tensor.tokens import handed_on, received

RANKS = 2
X = torch.randn(2, 3, 12, 4, generator=torch.Generator().manual_seed(1))
MASK = torch.rand(3, 12, 4, generator=torch.Generator().manual_seed(2)) > 0.5


def split(whole: Tensor, rank: int, dim: int, blocks: int = 1) -> Split:
    division = Division(Axis(rank, RANKS, None), dim, whole.shape[dim], blocks)
    return Split(division.part(whole), division)


def check(function: Callable[[Tensor], Any], x: Tensor, dim: int, blocks: int = 1) -> None:
    """Nothing is joined: this axis could not."""
    wanted = function(x)
    for rank in range(RANKS):
        found = function(split(x, rank, dim, blocks))
        for part, whole in zip(*map(_each, (found, wanted)), strict=True):
            assert isinstance(part, Split)
            assert part.shape == whole.shape
            assert part.dtype == whole.dtype
            torch.testing.assert_close(part.local, part.division.part(whole))


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


ELEMENTWISE: dict[str, Callable[[Tensor], Any]] = {
    "gelu": lambda x: F.gelu(x) * 2 + 1,
    "reflected": lambda x: 1 - 2 / (2**x),
    "broadcast": lambda x: x * X[0] + X[:1, :1] - X[..., :1] + X[:, :, :1],
    "both": lambda x: torch.maximum(x, -x) / x.exp(),
    "mask": lambda x: torch.where(MASK, x, 0).masked_fill(MASK, 1),
    "in place": lambda x: x.clone().add_(X).mul_(x),
    "iadd": lambda x: _added(x.clone()),
    "to": lambda x: x.to(torch.float64).float().type_as(x).contiguous(),
    "rms": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "softmax": lambda x: x.softmax(-1) + F.log_softmax(x, dim=3),
    "mean": lambda x: x.mean(0).sum(-1),
    "var": lambda x: x.var(-1, True).std(0, False, True),
    "norm": lambda x: F.layer_norm(x, (4,), X[0, 0, 0], X[0, 0, 1]),
    "stack": lambda x: torch.stack([x, X, x * 2], 1),
    "rotated": lambda x: torch.cat([-x[..., 2:], x[..., :2]], dim=-1),
}


def _added(x: Tensor) -> Tensor:
    x += X
    x *= 2
    return x


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("blocks", [1, 3])
def test_elements(name: str, blocks: int) -> None:
    check(ELEMENTWISE[name], X, 2, blocks)


MOVES: dict[str, Callable[[Tensor], Any]] = {
    "transpose": lambda x: x.transpose(1, 2).transpose(-1, -2).mT,
    "permute": lambda x: x.permute(2, 0, 3, 1),
    "unsqueeze": lambda x: x.unsqueeze(2).squeeze(2).unsqueeze(-1),
    "index": lambda x: x[:, None, 1:, :, 0],
    "ellipsis": lambda x: x[..., 1:3],
    "narrow": lambda x: x.narrow(-1, 1, 2).select(0, 1),
    "expand": lambda x: x[:, :, :, None].expand(2, 3, 12, 5, 4),
    "repeat": lambda x: x.repeat_interleave(3, dim=2).repeat_interleave(2, dim=0),
    "cut": lambda x: x.view(2, 3, 6, 2, 4).transpose(1, 2),
    "uncut": lambda x: x.transpose(1, 2).reshape(2, 12, -1),
    "merged": lambda x: x.flatten(2),
    "merged before": lambda x: x.flatten(0, 1).flatten(1, 2).view(6, 12, 4),
    "unflatten": lambda x: x.unflatten(2, (-1, 3)),
    "unbind": lambda x: x.unbind(1),
    "iter": tuple,
    "split": lambda x: x.split([1, 3], dim=-1),
    "chunk": lambda x: torch.chunk(x, 2, dim=3),
    "glu": F.glu,
}


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    check(MOVES[name], X, 2)


def test_blocks() -> None:
    x = torch.randn(2, 5, 24)
    check(lambda x: x.chunk(3, -1), x, 2, 3)
    check(lambda x: x.split(8, dim=2), x, 2, 3)
    check(lambda x: tuple(x.unflatten(2, (3, 4, -1)).permute(2, 0, 3, 1, 4)), x, 2, 3)
    check(lambda x: x.view(10, 24).view(2, 5, 3, 8).flatten(1, 2), x, 2, 3)
    check(F.glu, x, 2, 2)
    check(lambda x: x.flatten(), x, 2)
    check(lambda x: x.flatten().view(2, 5, 24), x, 2)


def test_a_dim_that_is_not_divided_equally() -> None:
    x = torch.randn(4, 5, 7)
    assert [split(x, rank, 2).local.shape[2] for rank in range(RANKS)] == [4, 3]
    check(lambda x: F.gelu(x).flatten(0, 1)[1:].view(-1, 7).float(), x, 2)


def test_products_of_matrices() -> None:
    other = torch.randn(2, 3, 4, 5)
    check(lambda x: x.transpose(1, 2) @ x.permute(0, 2, 3, 1), X, 2)
    check(lambda x: torch.matmul(x, other), X, 0)


ATTENTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "mask": {"attn_mask": torch.randn(2, 4, 6, 6)},
    "bool": {"attn_mask": torch.ones(6, 6, dtype=torch.bool).tril(), "scale": 0.5},
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention(name: str) -> None:
    whole = torch.randn(2, 4, 6, 8)
    own = torch.randn(2, 4, 6, 8)
    check(lambda x: F.scaled_dot_product_attention(x, x * 2, x, **ATTENTIONS[name]), whole, 1)
    check(lambda x: F.scaled_dot_product_attention(x, own, own, **ATTENTIONS[name]), whole, 1)


def test_dropout_drops_what_it_drops_of_the_whole() -> None:
    def dropped(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return F.dropout(x, 0.4)

    check(dropped, X, 2, 3)
    assert F.dropout(split(X, 0, 2), 0.4, training=False).local.equal(X[:, :, :6])


class Joining(Axis):
    """Rank 0's, which has X's first half of dim 2, and is sent the other."""

    def __init__(self, *, cuts_tokens: bool = False) -> None:
        super().__init__(0, RANKS, None, cuts_tokens=cuts_tokens)

    @property
    def is_trial(self) -> bool:
        return False

    def rows(self, _: Tensor, lengths: list[int]) -> Tensor:
        assert lengths == [6, 6]
        return X.movedim(2, 0)

    def half(self) -> Split:
        return Split(X[:, :, :6], Division(self, 2, 12), is_of_tokens=self.cuts_tokens)


def test_what_has_no_rule_gets_the_whole() -> None:
    x = Joining().half()
    assert torch.logcumsumexp(x, 2).equal(torch.logcumsumexp(X, 2))
    assert str(x) == str(X)
    assert all(map(torch.equal, torch.where(x), torch.where(X)))


def test_a_rule_of_ones_own() -> None:
    @torch.overrides.wrap_torch_function(lambda x: (x,))
    def doubled(x: Tensor) -> Tensor:
        assert type(x) is Tensor
        return x + x

    @rule(doubled)
    def of_doubled(call: Call) -> Any:
        return call.like(doubled(call.args[0].local), call.args[0])

    check(doubled, X, 2)


# --- Tokens ---------------------------------------------------------------------------------------


class Reads(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        assert type(x) is Tensor
        return x * 2

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


def test_a_split_of_tokens_is_joined_to_meet_one_of_features() -> None:
    x = Joining(cuts_tokens=True).half()
    features = Split(X[..., :2], Division(x.division.axis, 3, 4))
    both = x * features
    assert (both.division.dim, both.is_of_tokens) == (3, False)
    assert both.local.equal((X * X)[..., :2])
    assert (x + x).is_of_tokens


def test_a_function_of_autograd_gets_the_whole() -> None:
    x = Joining(cuts_tokens=True).half()
    with autograd_functions_get_wholes():
        assert Reads.apply(x).equal(X * 2)


def test_a_function_of_autograd_that_returns_a_split_is_refused() -> None:
    x = Joining(cuts_tokens=True).half()
    message = "CheckpointFunction: a function of autograd has returned a tensor that is split"
    with autograd_functions_get_wholes(), pytest.raises(corro.CorroError, match=message):
        checkpoint(lambda _: x + 1, torch.ones(1, requires_grad=True), use_reentrant=True)


def test_what_is_in_place_and_has_no_rule_is_refused() -> None:
    x = Joining(cuts_tokens=True).half()
    with pytest.raises(corro.FailedPreconditionError, match=r"erfinv, in place.*pin sequence"):
        x.erfinv_()


class Pair(nn.Module):
    """Columns and rows, with something in between the pairs."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(10, 8), nn.LayerNorm(8)
        self.up, self.down, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 10)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        x = self.table(x)
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        return self.head(F.dropout(self.between(x), 0.1))


def chosen(between: Callable[[Tensor], Tensor], tokens: int = 6) -> Choices:
    model = Pair(between)
    names = [name for name, _ in model.named_parameters()]
    batch = torch.zeros(2, tokens, dtype=torch.int64)
    shape = Shape(tensor=2, sequence_parallel=True)

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        return F.cross_entropy(model(x).flatten(0, 1), x.flatten())

    return choices_of(model, loss, batch, names, shape)


@pytest.mark.parametrize("tokens", [6, 7, 2])
def test_tokens_are_divided_between_products(tokens: int) -> None:
    choices = chosen(lambda x: x, tokens)
    assert choices.cuts_tokens
    assert "  along tokens: activations between products" in described(choices, 2, 9)
    assert {"table.weight", "down.weight", "head.bias"} <= choices.parameters.keys()
    assert "down.bias" not in choices.parameters


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        (lambda x: x + x.logcumsumexp(1) + x.flip(1), "2 products read them, and 2 functions"),
        (lambda x: x.erfinv_(), "erfinv, in place, has no rule"),
    ],
)
def test_tokens_stay_together_where_that_does_not_pay(
    between: Callable[[Tensor], Tensor], reason: str
) -> None:
    choices = chosen(between)
    assert not choices.cuts_tokens
    assert reason in described(choices, 2, 9)[-1]
    assert {"table.weight", "down.weight"} <= choices.parameters.keys()


def test_one_token_is_not_divided() -> None:
    assert not chosen(lambda x: x, 1).cuts_tokens


def test_stages_hand_on_a_part_and_how_much_it_is_of() -> None:
    x = Joining(cuts_tokens=True).half()
    local, count = handed_on(x)
    assert local is x.local
    slot = memoryview(bytearray(slots.HEADER + local.nbytes))
    slots.write(slot, local, "stage 0", count)
    sent = slots.read(slot)
    assert sent is not None
    again = received(sent, slots.tokens_of(slot), x.division.axis)
    assert isinstance(again, Split)
    assert (again.division, again.is_of_tokens) == (x.division, True)
    assert again.local.equal(x.local)


def test_stages_hand_on_what_is_divided_otherwise_as_a_whole() -> None:
    whole, count = handed_on(Joining(cuts_tokens=True).half().transpose(1, 2))
    assert (count, type(whole)) == (0, Tensor)
    assert whole.equal(X.transpose(1, 2))
