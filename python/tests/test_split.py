"""Rules of torch's functions on split tensors: each rank's part is that of the whole result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from corro.torch.parallel import Call, Split, rule
from corro.torch.parallel.tensor import Axis, Division

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


def test_what_has_no_rule_gets_the_whole() -> None:
    class Joining(Axis):
        def rows(self, _: Tensor, lengths: list[int]) -> Tensor:
            assert lengths == [6, 6]
            return X.movedim(2, 0)

    x = Split(X[:, :, :6], Division(Joining(0, RANKS, None), 2, 12))
    assert torch.logcumsumexp(x, 2).equal(torch.logcumsumexp(X, 2))
    assert str(x) == str(X)


def test_a_rule_of_ones_own() -> None:
    @torch.overrides.wrap_torch_function(lambda x: (x,))
    def doubled(x: Tensor) -> Tensor:
        assert type(x) is Tensor
        return x + x

    @rule(doubled)
    def of_doubled(call: Call) -> Any:
        return call.like(doubled(call.args[0].local), call.args[0])

    check(doubled, X, 2)
