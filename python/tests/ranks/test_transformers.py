"""Models of Hugging Face, made from configs: each plan trains them as one process does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from parallel_training import SEED, adam, alone, machines
from torch import Tensor, nn

import corro

transformers = pytest.importorskip("transformers", reason="needs transformers")
pytestmark = pytest.mark.usefixtures("job", "one_thread")

STEPS, SAMPLES = 5, 8
SIZES = {"vocab_size": 100, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4}


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        n_layer=4, n_embd=64, n_head=4, vocab_size=100, n_positions=32, use_cache=False
    )
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model


def llama() -> nn.Module:
    config = transformers.LlamaConfig(**SIZES, intermediate_size=128, num_key_value_heads=2)
    model: nn.Module = transformers.LlamaForCausalLM(config)
    return model


def mixtral() -> nn.Module:
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    config = transformers.MixtralConfig(
        **SIZES, intermediate_size=96, num_key_value_heads=2, **experts
    )
    model: nn.Module = transformers.MixtralForCausalLM(config)
    return model


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    found: Tensor = model(input_ids=batch["input_ids"], labels=batch["labels"]).loss
    return found


def batches() -> list[dict[str, Tensor]]:
    random = torch.Generator().manual_seed(2)
    drawn = [torch.randint(0, 100, (SAMPLES, 16), generator=random) for _ in range(STEPS)]
    return [{"input_ids": tokens, "labels": tokens} for tokens in drawn]


def mixtral_eager() -> nn.Module:
    """Its experts without tokens lead to nothing."""
    model = mixtral()
    model.config._experts_implementation = "eager"
    return model


@pytest.mark.parametrize("make", [gpt2, llama, mixtral, mixtral_eager])
def test_each_way_trains_as_one_process(make: Callable[[], nn.Module]) -> None:
    def made() -> nn.Module:
        torch.manual_seed(SEED)
        return make().train()  # GPT-2 with its dropout.

    expected, _ = alone(made(), loss, batches(), lambda batch: len(batch["input_ids"]))
    for way in ("data", "pipeline", "tensor"):
        model = made()
        pins: dict[str, Any] = {"data": 1, "pipeline": 1, way: corro.size(), "micro_batch": 2}
        with corro.parallelize(
            model, adam(model), loss, batches()[0], machines(), pins=pins
        ) as trainer:
            losses = [trainer.step(batch) for batch in batches()]
        assert losses == pytest.approx(expected, abs=1e-5), pins
        assert getattr(trainer.plan.decisions.shape, way) == corro.size()
