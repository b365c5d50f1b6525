"""How far the losses of plans are from those of one process: writes docs/exactness.md.

corro run -n 4 -- python python/tests/exactness.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from parallel_training import SEED, adam, alone, gpt, with_disk
from torch import Tensor, nn

import corro

PAGE = Path(__file__).resolve().parents[2] / "docs" / "exactness.md"
RANKS, SAMPLES, STEPS = 4, 8, 20

PLANS: dict[str, dict[str, Any]] = {
    "data 4": {"pipeline": 1, "zero": 0, "micro_batch": 1, "recompute": "none"},
    "ZeRO 1": {"pipeline": 1, "zero": 1, "micro_batch": 2, "recompute": "none"},
    "ZeRO 2": {"pipeline": 1, "zero": 2, "micro_batch": 1, "recompute": "full"},
    "ZeRO 3": {"pipeline": 1, "zero": 3, "micro_batch": 1, "recompute": "none"},
    "pipeline 4": {"pipeline": 4, "micro_batch": 2, "recompute": "none"},
    "pipeline 2, data 2": {"pipeline": 2, "zero": 0, "micro_batch": 1, "recompute": "full"},
    "pipeline 2, ZeRO 2": {"pipeline": 2, "zero": 2, "micro_batch": 2, "recompute": "none"},
    "tensor 4": {"tensor": 4, "zero": 0, "micro_batch": 4, "recompute": "none"},
    "tensor 2, ZeRO 3": {"tensor": 2, "pipeline": 1, "zero": 3, "micro_batch": 2},
    "tensor 2, pipeline 2": {"tensor": 2, "pipeline": 2, "zero": 0, "micro_batch": 2},
    "offload": {"pipeline": 1, "offload": "weights", "micro_batch": 2, "recompute": "none"},
}


class Image(nn.Module):
    """A ViT: patches, encoder layers, the mean's class."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 4, 4)
        self.place = nn.Parameter(torch.randn(1, 16, 32) * 0.02)
        self.layers = nn.Sequential(
            *(nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True) for _ in range(4))
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.layers(x).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTM(24, 24, batch_first=True) for _ in range(4))
        self.head = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        for each in self.cells:
            x = x + each(x)[0]
        return self.head(x[:, -1])


def mlp() -> nn.Module:
    widths = [(48, 96), (96, 96), (96, 96), (96, 48)]
    layers = [nn.Sequential(nn.Linear(*each), nn.GELU(), nn.Dropout(0.1)) for each in widths]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(48, 10))


def cnn() -> nn.Module:
    widths = [(3, 8), (8, 16), (16, 16), (16, 16)]
    layers = [
        nn.Sequential(nn.Conv2d(*each, 3, padding=1), nn.GroupNorm(2, each[1]), nn.ReLU())
        for each in widths
    ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=4, n_embd=64, n_head=4, vocab_size=100, n_positions=32)
    model: nn.Module = GPT2LMHeadModel(config)
    return model.train()


SIZES = {"vocab_size": 100, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4}


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**SIZES, intermediate_size=128, num_key_value_heads=2)
    model: nn.Module = LlamaForCausalLM(config)
    return model.train()


def mixtral() -> nn.Module:
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {"intermediate_size": 96, "num_local_experts": 4, "num_experts_per_tok": 2}
    config = MixtralConfig(**SIZES, **sizes, num_key_value_heads=2)
    model: nn.Module = MixtralForCausalLM(config)
    return model.train()


def classes(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def tokens(model: nn.Module, batch: Any) -> Tensor:
    logits = model(batch[0])
    return F.cross_entropy(logits.flatten(0, 1), batch[0].roll(-1, 1).flatten())


def own(model: nn.Module, batch: Any) -> Tensor:
    loss: Tensor = model(input_ids=batch[0], labels=batch[0]).loss
    return loss


def batches(*shape: int) -> list[tuple[Tensor, Tensor]]:
    """Of these many floats a sample, or, of one dim, of tokens; one has fewer samples."""
    random = torch.Generator().manual_seed(2)
    counts = [5 if step == 7 else SAMPLES for step in range(STEPS)]
    return [
        (
            torch.randint(0, 75, (count, *shape), generator=random)
            if len(shape) == 1
            else torch.randn(count, *shape, generator=random),
            torch.randint(0, 10, (count,), generator=random),
        )
        for count in counts
    ]


Row = tuple[Callable[[], nn.Module], Callable[[nn.Module, Any], Tensor], tuple[int, ...]]
MODELS: dict[str, Row] = {
    "MLP": (mlp, classes, (3, 4, 4)),
    "CNN": (cnn, classes, (3, 8, 8)),
    "ViT": (Image, classes, (3, 16, 16)),
    "LSTM": (Recurrent, classes, (6, 24)),
    "GPT, tied, dropout 0.1": (lambda: gpt(0.1), tokens, (16,)),
    "GPT-2 (transformers), tied, dropout 0.1": (gpt2, own, (16,)),
    "Llama (transformers)": (llama, own, (16,)),
    "Mixtral (transformers), 4 experts": (mixtral, own, (16,)),
}


def differences(name: str, steps: int = STEPS) -> dict[str, float]:
    """Returns for each plan the greatest relative difference of a loss from one process's.

    Called by all ranks. A plan that the model cannot have is not among them.
    """
    make, loss, shape = MODELS[name]
    given = batches(*shape)[:steps]

    def made() -> nn.Module:
        torch.manual_seed(SEED)
        model = make()
        torch.manual_seed(SEED)
        return model

    expected, _ = alone(made(), loss, given, lambda batch: len(batch[0]))
    found: dict[str, float] = {}
    for plan, pins in PLANS.items():
        model = made()
        try:
            trainer = corro.parallelize(
                *(model, adam(model), loss, given[0], with_disk()),
                pins=pins,
                offload=tempfile.gettempdir() if "offload" in pins else None,
            )
        except corro.InvalidArgumentError:
            continue
        with trainer:
            losses = [trainer.step(each) for each in given]
        pairs = zip(losses, expected, strict=True)
        found[plan] = max(abs(one - other) / abs(other) for one, other in pairs)
    return found


def page(rows: dict[str, dict[str, float]]) -> str:
    title = ["model", *PLANS]
    lines = [title, ["---"] * len(title)]
    for name, found in rows.items():
        cells = [f"{found[plan]:.0e}" if plan in found else "no such plan" for plan in PLANS]
        lines.append([name, *cells])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    version = torch.__version__.partition("+")[0]
    return f"""# How exact plans are

The greatest relative difference of a loss from those of one process, over {STEPS} steps of AdamW in
f32 with batches of {SAMPLES} samples, one of which has five, on {RANKS} ranks: what rounding does
in another order of sums. `corro run -n {RANKS} -- python python/tests/exactness.py` writes this
page; here with torch {version}, on CPUs.

{table}
"""


if __name__ == "__main__":
    corro.init()
    torch.set_num_threads(1)
    if corro.size() != RANKS:
        raise SystemExit(f"exactness.py: give it {RANKS} ranks, not {corro.size()}")
    written = {}
    for name in MODELS:
        written[name] = differences(name)
        if corro.rank() == 0:
            print(name, written[name], flush=True)
    if corro.rank() == 0:
        PAGE.write_text(page(written))
