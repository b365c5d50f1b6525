"""Models of known sizes, with batches that two cores get through in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

IMAGES, CLASSES = 4, 1000
TOKENS, VOCABULARY, WIDTH = 128, 50257, 768


class Bottleneck(nn.Module):
    """The block of ResNet-50 (He et al. 2016), with its stride in the 3 x 3 convolution."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.path = nn.Sequential(
            *convolution(inputs, width, 1),
            nn.ReLU(),
            *convolution(width, width, 3, stride),
            nn.ReLU(),
            *convolution(width, outputs, 1),
        )
        same = inputs == outputs and stride == 1
        self.around = nn.Sequential(*([] if same else convolution(inputs, outputs, 1, stride)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.path(x) + self.around(x))


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    """A convolution that keeps height and width, but for its stride, and a batch norm."""
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return [layer, nn.BatchNorm2d(outputs)]


def resnet50() -> nn.Module:
    """25 557 032 parameters in 161 tensors."""
    layers = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    inputs = 64
    for width, blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, first_stride if block == 0 else 1))
            inputs = 4 * width
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *pool, nn.Linear(inputs, CLASSES))


class GPT2Small(nn.Module):
    """124 439 808 parameters in 148 tensors; the last layer is the first one's (Radford et al.
    2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(1024, WIDTH)
        block = nn.TransformerEncoderLayer(
            WIDTH,
            nhead=12,
            dim_feedforward=4 * WIDTH,
            dropout=0.0,
            activation=F.gelu,
            batch_first=True,
            norm_first=True,
        )
        self.blocks = nn.TransformerEncoder(
            block, num_layers=12, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.places.weight[:length]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.blocks(x, mask=mask, is_causal=True)
        return F.linear(x, self.tokens.weight)


def images(random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(IMAGES, 3, 224, 224, generator=random)
    return x, torch.randint(CLASSES, (IMAGES,), generator=random)


def text(random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(VOCABULARY, (1, TOKENS + 1), generator=random)
    return tokens[:, :-1], tokens[:, 1:]


@dataclass(frozen=True)
class Task:
    """A model, and what makes a batch for it: inputs and the classes to predict."""

    model: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], tuple[torch.Tensor, torch.Tensor]]


TASKS = {"resnet50": Task(resnet50, images), "gpt2-small": Task(GPT2Small, text)}
