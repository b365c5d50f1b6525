"""corro.parallelize(): clipping over all shards, loss scaling and autocast, under several plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from parallel_training import SAMPLES, batches, gpt, machines, next_token
from torch import Tensor, nn

import corro
from corro.torch.parallel import Trainer

pytestmark = pytest.mark.usefixtures("job", "one_thread")


def plans() -> Iterator[dict[str, object]]:
    size = corro.size()
    for zero in range(4 if size > 1 else 1):
        yield {"tensor": 1, "pipeline": 1, "zero": zero, "micro_batch": 2}
    if size > 1:
        yield {"tensor": 1, "pipeline": size, "zero": 0, "micro_batch": 2}
        yield {"tensor": size, "pipeline": 1, "micro_batch": 2}
    if size > 2:
        yield {"tensor": 1, "pipeline": size // 2, "zero": 1, "micro_batch": 1}
        yield {"tensor": size // 2, "pipeline": 1, "zero": 2, "micro_batch": 1}


def trainer_of(model: nn.Module, pins: Any, loss: Any = next_token, **options: Any) -> Trainer:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)  # Which a gradient's length matters to.
    return corro.parallelize(model, optimizer, loss, batches()[0], machines(), pins=pins, **options)


def test_gradients_are_clipped_by_the_norm_of_all_of_them() -> None:
    model, losses, norms = gpt(), [], []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in batches(6):
        loss = next_token(model, batch)
        torch.autograd.backward(loss)
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.3)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert min(norms) > 0.3
    for pins in plans():
        for scale in (None, 2.0**10):
            with trainer_of(gpt(), pins, max_norm=0.3, loss_scale=scale) as trainer:
                for batch, wanted, norm in zip(batches(6), losses, norms, strict=True):
                    assert trainer.step(batch) == pytest.approx(wanted, abs=1e-5), pins
                    assert trainer.scaling.norm == pytest.approx(norm, rel=1e-4), pins


def test_the_norm_has_one_steps_gradients_of_what_the_optimizer_leaves_alone() -> None:
    def some(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(list(model.parameters())[::2], 0.1)

    model, norms = gpt(), []
    optimizer = some(model)
    for batch in batches(3):
        torch.autograd.backward(next_token(model, batch))
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.3)))
        optimizer.step()
        model.zero_grad()
    for pins in plans():
        model = gpt()
        with corro.parallelize(
            *(model, some(model), next_token, batches()[0], machines()), pins=pins, max_norm=0.3
        ) as trainer:
            for batch, norm in zip(batches(3), norms, strict=True):
                trainer.step(batch)
                assert trainer.scaling.norm == pytest.approx(norm, rel=1e-4), pins


def test_a_step_that_overflows_changes_nothing_and_halves_the_scale() -> None:
    steps = batches(3)

    def loss(model: nn.Module, tokens: Tensor) -> Tensor:
        factor: Tensor = torch.where((tokens[:, 0] == 74).any(), 1e36, 1.0)
        return next_token(model, tokens) * factor

    steps = [batch.clamp(max=73) for batch in steps]
    overflows = steps[1].clone()
    overflows[SAMPLES // 2 :, 0] = 74  # In some samples alone, and so on some ranks.
    for pins in plans():
        with trainer_of(gpt(), pins) as trainer:
            wanted = [trainer.step(batch) for batch in steps]
        with trainer_of(gpt(), pins, loss, loss_scale="dynamic") as trainer:
            losses = [trainer.step(steps[0])]
            assert trainer.scaling.loss_scale == 2**16
            trainer.step(overflows)
            assert trainer.scaling.loss_scale == 2**15, pins
            losses += [trainer.step(batch) for batch in steps[1:]]
        assert losses == pytest.approx(wanted, abs=1e-5), pins


def test_autocast_trains_parameters_in_f32() -> None:
    def loss(model: nn.Module, tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return next_token(model, tokens)

    model, wanted = gpt(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in batches(5):
        each = loss(model, batch)
        torch.autograd.backward(each)
        optimizer.step()
        optimizer.zero_grad()
        wanted.append(each.item())
    for pins in plans():
        model = gpt()
        with trainer_of(model, pins, loss) as trainer:
            # Sums in bfloat16 depend on how many samples there are: 8 bits of a number.
            losses = [trainer.step(batch) for batch in batches(5)]
        assert losses == pytest.approx(wanted, rel=2e-3), pins
        assert all(each.dtype == torch.float32 for each in model.parameters())


def test_bad_options_are_refused() -> None:
    for options in ({"max_norm": 0}, {"max_norm": "1"}, {"loss_scale": -1}, {"loss_scale": "no"}):
        (name,) = options
        with pytest.raises(corro.InvalidArgumentError, match=f"parallelize: {name}: "):
            trainer_of(gpt(), {}, **options)
