"""Modules of drawn models (drawn.py): all keep a [B, T, D].

What a model may have is drawn from MIXERS; what lies between two products, from BETWEEN.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from corro.torch.parallel import experts


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


class Grouped(nn.Module):
    """Attention of as many heads as queries have, and one head, or two, of keys and values."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.of_keys, self.dropout = heads, 2 - heads % 2, dropout
        self.size = width // heads
        self.q, self.o = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * self.of_keys * self.size)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).view(*x.shape[:2], self.heads, self.size).transpose(1, 2)
        k, v = self.kv(x).chunk(2, -1)
        k, v = (
            each.reshape(*x.shape[:2], self.of_keys, self.size)
            .transpose(1, 2)
            .repeat_interleave(self.heads // self.of_keys, 1)
            for each in (k, v)
        )
        p = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.o(mixed.transpose(1, 2).reshape(x.shape))


class Twice(nn.Module):
    """Uses a layer that other modules use, too, and one of its own twice."""

    def __init__(self, width: int, shared: nn.Linear) -> None:
        super().__init__()
        self.shared, self.own = shared, nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.own(F.silu(self.own(self.shared(x))))


class Gated(nn.Module):
    """Two products beside each other, of weights that are no layer's."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.randn(width, inner) / width**0.5)
        self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(x @ self.gate) * self.up(x))


class Again(nn.Module):
    """A checkpoint of the user's own."""

    def __init__(self, inner: nn.Module, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = inner, reentrant

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return result


class Between(nn.Module):
    """Two products with a function of BETWEEN in between."""

    def __init__(self, width: int, inner: int, name: str) -> None:
        super().__init__()
        self.name = name
        self.first, self.second = nn.Linear(width, inner), nn.Linear(inner, width)
        self.scale = nn.Parameter(torch.ones(inner))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(BETWEEN[self.name](self.first(x) * self.scale))

    def extra_repr(self) -> str:
        return self.name


def _in_place(x: Tensor) -> Tensor:
    x = x.clone()
    x.mul_(0.5).add_(1)
    x[:, 0] = 0
    return x


def _normalized(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1)


def _by_places(x: Tensor) -> Tensor:
    y = x.transpose(1, 2)
    return torch.softmax(y, -1).mT * x


BETWEEN: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "dropout": lambda x: F.dropout(F.relu(x), 0.1),
    "cumsum": lambda x: x.cumsum(-1) * 0.1,
    "cumsum of places": lambda x: x.cumsum(1) * 0.1,
    "softmax": lambda x: x.softmax(-1),
    "softmax of places": _by_places,
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "normalized": _normalized,
    "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, 1) + x.roll(1, -1),
    "most": lambda x: x * x.amax(1, keepdim=True),
    "mean": lambda x: x - x.mean(1, keepdim=True),
    "mean of a sample": lambda x: x - x.mean((1, 2), keepdim=True),
    "einsum": lambda x: torch.einsum("btd,bsd->bts", x, x).softmax(-1).tril() @ x,
    "in place": _in_place,
    "where": lambda x: torch.where(x > 0, x, x.sin()),
    "masked": lambda x: x.masked_fill(x < -1, -1.0).clamp(max=2.0),
    "stack": lambda x: torch.stack([x, x.tanh()]).sum(0),
    "cat": lambda x: torch.cat([x[:, :1], x[:, :-1]], 1),
    "pad": lambda x: F.pad(x, (0, 0, 1, 0))[:, :-1],
    "sorted": lambda x: x.sort(-1).values,
    "topk": lambda x: x * (x >= x.topk(3, -1).values[..., -1:]),
    "double": lambda x: x.double().square().to(x.dtype),
    "norm": lambda x: x / (x.norm(dim=-1, keepdim=True) + 1),
    "each place": lambda x: torch.stack([each.tanh() for each in x.unbind(1)], 1),
    "last dims": lambda x: x.movedim(-1, 1).contiguous().movedim(1, -1).exp().reciprocal(),
    "gathered": lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.long)) + x,
    "expanded": lambda x: x.unsqueeze(1).expand(-1, 2, -1, -1).mean(1),
    "flat": lambda x: x.flatten(0, 1).relu().view(x.shape),
    "glu": lambda x: torch.cat([F.glu(torch.cat([x, x], -1)), x], -1)[..., : x.shape[-1]],
}


@experts
class Experts(nn.Module):
    """A bank, as transformers have them."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.num_experts = count
        self.up = nn.Parameter(torch.randn(count, 2 * width, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(count, width, 2 * width) / width**0.5)

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        out = torch.zeros_like(hidden_states)
        for expert in range(self.num_experts):
            rows, places = torch.where(top_k_index == expert)
            made = F.gelu(hidden_states[rows] @ self.up[expert].t()) @ self.down[expert].t()
            out = out.index_add(0, rows, made * top_k_weights[rows, places, None])
        return out


class Routed(nn.Module):
    """A gate, and the best two experts of a bank."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(width, count), Experts(width, count)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        weights, index = self.gate(tokens).softmax(-1).topk(2)
        result: Tensor = self.experts(tokens, index, weights)
        return result.view(x.shape)


Mixer = Callable[[Random, int, int], nn.Module]
"""Given a draw, a width, and heads that divide it."""


def _mlp(draw: Random, width: int, _: int) -> nn.Module:
    inner = draw.choice((2 * width, 3 * width, 7))
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


def _between(draw: Random, width: int, _: int) -> nn.Module:
    return Between(width, draw.choice((2 * width, 3 * width, 7)), draw.choice(sorted(BETWEEN)))


MIXERS: list[Mixer] = [
    _mlp,
    _between,
    _between,
    lambda _, width, __: Convolving(width),
    lambda draw, width, _: Running(width, draw.choice((nn.GRU, nn.LSTM))),
    lambda _, width, heads: Attending(width, heads),
    lambda draw, width, heads: Grouped(width, heads, draw.choice((0.0, 0.1))),
    lambda draw, width, _: Gated(width, draw.choice((3 * width, 2 * width + 1))),
    lambda draw, width, _: Routed(width, draw.choice((3, 4))),
    lambda draw, width, heads: Again(_mlp(draw, width, heads), draw.random() < 0.5),
]
