"""Modules that test_record.py records: ordinary ones, and what users do in theirs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """As examples/gpt_bible.py."""

    def __init__(self, width: int, heads: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    """As examples/gpt_bible.py; `tied`: the head uses the embedding's table."""

    def __init__(
        self,
        symbols: int = 75,
        width: int = 32,
        layers: int = 3,
        context: int = 16,
        tied: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, dropout=dropout) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=not tied)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(x) + self.place.weight[: x.size(1)])))


class RMSNorm(nn.Module):
    """Written out, as many do."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class LlamaLayer(nn.Module):
    """Like a Hugging Face decoder layer: keyword arguments, a tuple out, softmax by hand."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width), RMSNorm(width)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate_proj, self.up_proj = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(3 * width, width, bias=False)

    def forward(self, hidden: Tensor, *, mask: Tensor, angles: tuple[Tensor, Tensor]) -> Any:
        x = self.input_layernorm(hidden)
        q, k, v = (
            layer(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = (_rotated(each, *angles) for each in (q, k))
        scores = q @ k.transpose(2, 3) / q.size(-1) ** 0.5 + mask
        mixed = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ v
        hidden = hidden + self.o_proj(mixed.transpose(1, 2).reshape(x.shape))
        x = self.post_attention_layernorm(hidden)
        return (hidden + self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)),)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class LlamaModel(nn.Module):
    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(50, width)
        self.layers = nn.ModuleList([LlamaLayer(width, heads) for _ in range(layers)])
        self.norm = RMSNorm(width)
        sizes = torch.arange(0, width // heads, 2) / (width // heads)
        self.register_buffer("frequencies", 1.0 / 10000**sizes, persistent=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.embed_tokens(input_ids)
        time = torch.arange(input_ids.size(1), device=input_ids.device)
        angles = (time[:, None] * self.frequencies).repeat(1, 2)
        causal = torch.full((time.numel(), time.numel()), -1e9, device=hidden.device).triu(1)
        mask = (1.0 - attention_mask[:, None, None, :].to(hidden.dtype)) * -1e9 + causal
        for layer in self.layers:
            (hidden,) = layer(hidden, mask=mask, angles=(angles.cos(), angles.sin()))
        return self.norm(hidden)


class LlamaForCausalLM(nn.Module):
    """Like Hugging Face's: a dict out, the loss inside."""

    def __init__(self, width: int = 32, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.model = LlamaModel(width, heads, layers)
        self.lm_head = nn.Linear(width, 50, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Any:
        logits = self.lm_head(self.model(input_ids, attention_mask)).float()
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
            if stride != 1
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Residual(8, 8, 1), Residual(8, 8, 1))
        self.layer2 = nn.Sequential(Residual(8, 16, 2), Residual(16, 16, 1))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(self.avgpool(self.layer2(self.layer1(x))).flatten(1))


class UNet(nn.Module):
    """No chain: what the first layers computed is used again by the last."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 16, 3, 2, 1)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 3, 3, 1, 1)])

    def forward(self, x: Tensor) -> Tensor:
        first = F.relu(self.down[0](x))
        second = F.relu(self.down[1](first))
        return self.up[1](torch.cat((self.up[0](second), first), 1))


class SizesDecide(nn.Module):
    """Control flow on sizes, a dict as input, Python side effects."""

    def __init__(self) -> None:
        super().__init__()
        self.short, self.long = nn.Linear(8, 8), nn.Linear(8, 8)
        self.calls: list[int] = []
        self.count = 0
        self.last: Tensor | None = None

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        x = batch["x"]
        self.count += 1
        self.calls.append(x.size(0))
        self.last = self.long(x) if x.size(0) > 4 else self.short(x)
        return self.last * batch["weight"]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 24, num_layers=2, batch_first=True)
        self.head = nn.Linear(24, 50)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(x))[0])


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(32, 32)
        self.blocks = nn.ModuleList([Block(32) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x
