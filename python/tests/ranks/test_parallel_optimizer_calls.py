"""What users call on an optimizer while a trainer has it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from parallel_training import adam, batches, gpt, machines, next_token

import corro
from corro.torch.parallel import Trainer

pytestmark = pytest.mark.usefixtures("job", "one_thread")


def started(optimizer: Any, model: Any, zero: int, tensor: int = 1) -> Trainer:
    pins = {"tensor": tensor, "pipeline": 1, "zero": zero, "micro_batch": 2}
    main = bool(next(model.parameters()).dtype == torch.bfloat16)
    return corro.parallelize(
        model, optimizer, next_token, batches()[0], machines(), pins=pins, main_weights=main
    )


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_whole_state_is_loaded_as_before_parallelize(zero: int, dtype: torch.dtype) -> None:
    steps = batches(4)
    first = gpt().to(dtype)
    optimizer = adam(first)
    with started(optimizer, first, 0) as trainer:
        for each in steps[:2]:
            trainer.step(each)
    whole, weights = optimizer.state_dict(), first.state_dict()
    losses = []
    for after in (False, True):
        model = gpt().to(dtype)
        model.load_state_dict(weights)
        optimizer = adam(model)
        if not after:
            optimizer.load_state_dict(copy.deepcopy(whole))
        with started(optimizer, model, zero) as trainer:
            if after:
                optimizer.load_state_dict(copy.deepcopy(whole))
            losses.append([trainer.step(each) for each in steps[2:]])
    assert losses[0] == losses[1]


def test_its_own_state_goes_back_into_it() -> None:
    model = gpt()
    optimizer = adam(model)
    with started(optimizer, model, 3) as trainer:
        trainer.step(batches()[0])
        before = copy.deepcopy(optimizer.state_dict())
        weights = copy.deepcopy(trainer.gather().state_dict())
        loss = [trainer.step(each) for each in batches(2)]
        trainer.gather().load_state_dict(weights)
        optimizer.load_state_dict(before)
        assert [trainer.step(each) for each in batches(2)] == loss


def test_a_state_of_another_model_is_refused_and_nothing_has_changed() -> None:
    if corro.size() == 1:
        pytest.skip("one rank has all")
    model = gpt()
    optimizer = adam(model)
    with started(optimizer, model, 1) as trainer:
        trainer.step(batches()[0])
        other = copy.deepcopy(optimizer.state_dict())
        other["state"][0]["exp_avg"] = torch.zeros(3, 3)
        with pytest.raises(corro.InvalidArgumentError, match=r"embed.weight: exp_avg has .*3, 3"):
            optimizer.load_state_dict(other)
        other["param_groups"].clear()
        del other["state"][0]
        with pytest.raises(ValueError, match="parameter group"):
            optimizer.load_state_dict(other)
        loss = trainer.step(batches()[1])
    assert loss == pytest.approx(expected_second(), abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_divided_parameters_a_part_of_state_is_loaded_alone(dtype: torch.dtype) -> None:
    if corro.size() % 2:
        pytest.skip("needs pairs of ranks")
    model = gpt(tied=False).to(dtype)
    optimizer = adam(model)
    whole = dict(model.named_parameters())["head.weight"].shape
    with started(optimizer, model, 0, tensor=2) as trainer:
        trainer.step(batches()[0])
        own = copy.deepcopy(optimizer.state_dict())
        optimizer.load_state_dict(own)
        number = [name for name, _ in model.named_parameters()].index("head.weight")
        assert own["state"][number]["exp_avg"].numel() < whole.numel()
        own["state"][number]["exp_avg"] = torch.zeros(whole)
        with pytest.raises(corro.InvalidArgumentError, match=r"head.weight: exp_avg has .*75, 32"):
            optimizer.load_state_dict(own)


def expected_second() -> float:
    model = gpt()
    with started(adam(model), model, 0) as trainer:
        trainer.step(batches()[0])
        return trainer.step(batches()[1])


def test_new_groups_are_refused_until_close() -> None:
    model = gpt()
    held, rest = list(model.parameters())[:-1], list(model.parameters())[-1:]
    optimizer = torch.optim.AdamW(held, 1e-3)
    trainer = started(optimizer, model, 1 if corro.size() > 1 else 0)
    with pytest.raises(corro.FailedPreconditionError, match=r"trainer.close\(\), add the group"):
        optimizer.add_param_group({"params": rest})
    trainer.close()
    optimizer.add_param_group({"params": rest})
    with started(optimizer, model, 0) as trainer:
        trainer.step(batches()[0])
    assert len(optimizer.state) == len(held) + 1
