"""A GPT that two processor cores can train, and a mixture of its parts, for corro plan --measure.

corro plan --measure --model gpt_small.py:gpt --cluster cpu_2.yaml
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, LAYERS, SYMBOLS, TOKENS = 256, 8, 8, 256, 128

Built = tuple[nn.Module, Tensor, Callable[[Tensor], Tensor]]


class Embedding(nn.Module):
    """Of symbols and of their places."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols, self.places = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(TOKENS, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.symbols(x) + self.places.weight


class Block(nn.Module):
    """Attention and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Head(nn.Module):
    """Logits of the next symbol."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.symbols = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, SYMBOLS)

    def forward(self, x: Tensor) -> Tensor:
        return self.symbols(self.norm(x))


def gpt(samples: int = 1) -> Built:
    """The small GPT, random text, and its cross entropy."""
    text = torch.randint(SYMBOLS, (samples, TOKENS + 1))

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())

    model = nn.Sequential(Embedding(), *[Block() for _ in range(LAYERS)], Head())
    return model, text[:, :-1].contiguous(), loss


def perceptron(samples: int = 1) -> Built:
    """Wide linear layers without attention: little to compute for many parameters."""
    wide = 1536
    x, y = torch.randn(samples, 16, wide), torch.randn(samples, 16, wide)

    def layer() -> nn.Module:
        return nn.Sequential(nn.LayerNorm(wide), nn.Linear(wide, wide), nn.GELU())

    model = nn.Sequential(*[layer() for _ in range(6)], nn.Linear(wide, wide))
    return model, x, lambda out: F.mse_loss(out, y)
