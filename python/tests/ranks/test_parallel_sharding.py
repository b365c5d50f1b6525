"""corro.parallelize() with ZeRO: optimizers, states, odd models, and what ranks keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from parallel_training import SEED, adam, alone, batches, gpt, machines, next_token
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import corro
from corro.torch.parallel import Trainer

pytestmark = pytest.mark.usefixtures("job", "one_thread")

LEVELS = (1, 2, 3)
Make = Callable[[nn.Module], torch.optim.Optimizer]


def sharded(
    model: nn.Module, optimizer: Any, zero: int, loss: Any, batch: Any, stages: int = 1
) -> Trainer:
    pins = {"tensor": 1, "pipeline": stages, "zero": zero, "micro_batch": 2}
    return corro.parallelize(model, optimizer, loss, batch, machines(), pins=pins)


def check_as_one_process(
    make: Callable[[], nn.Module],
    loss: Any,
    steps: list[Any],
    optimizer: Make = adam,
    levels: tuple[int, ...] = LEVELS,
    stages: int = 1,
) -> None:
    expected, trained = alone(make(), loss, steps, make_optimizer=optimizer)
    for zero in levels:
        model = make()
        with sharded(model, optimizer(model), zero, loss, steps[0], stages) as trainer:
            assert [trainer.step(each) for each in steps] == pytest.approx(expected, abs=1e-5), zero
        for (name, own), wanted in zip(model.named_parameters(), trained.parameters(), strict=True):
            if not name.endswith("qkv.bias"):  # Its gradients for keys are 0, but for rounding.
                torch.testing.assert_close(own, wanted, atol=1e-4, rtol=1e-3)


OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True),
    "adam": lambda model: torch.optim.Adam(model.parameters(), 1e-3, amsgrad=True),
    "adagrad": lambda model: torch.optim.Adagrad(model.parameters(), 1e-2),
    "adadelta": lambda model: torch.optim.Adadelta(model.parameters()),
    "rmsprop": lambda model: torch.optim.RMSprop(model.parameters(), 1e-3, centered=True),
    "rprop": lambda model: torch.optim.Rprop(model.parameters(), 1e-4),
    "asgd": lambda model: torch.optim.ASGD(model.parameters(), 1e-2),
    "adamax": lambda model: torch.optim.Adamax(model.parameters(), 1e-3),
    "nadam": lambda model: torch.optim.NAdam(model.parameters(), 1e-3),
    "radam": lambda model: torch.optim.RAdam(model.parameters(), 1e-3),
    "groups": lambda model: torch.optim.AdamW(
        [
            {"params": list(model.parameters())[3:], "lr": 1e-4},
            {"params": list(model.parameters())[:3], "weight_decay": 0.0},
        ],
        1e-3,
    ),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_step_parts_as_they_step_the_whole(optimizer: str) -> None:
    check_as_one_process(gpt, next_token, batches(4), OPTIMIZERS[optimizer], (1, 3))


def test_ranks_keep_a_part_of_what_is_cut() -> None:
    seen: list[float] = []

    def watched(model: nn.Module, tokens: Tensor) -> Tensor:
        return next_token(model, tokens)

    whole = sum(each.numel() for each in gpt().parameters())
    for zero in LEVELS if corro.size() > 1 else ():
        model = gpt()
        optimizer = adam(model)
        trainer = sharded(model, optimizer, zero, watched, batches()[0])
        names = [name for name, _ in model.named_parameters()]

        def held(*_: Any, model: nn.Module = model) -> None:
            seen.append(sum(each.untyped_storage().nbytes() for each in model.parameters()) / 4)

        held_by_blocks = [block.register_forward_hook(held) for block in model.blocks]
        seen.clear()
        trainer.step(batches()[0])
        assert len(seen) >= 3
        states = sum(each["exp_avg"].numel() for each in optimizer.state.values())
        # The table of places is read outside of modules, but not by other stages.
        assert states <= whole / corro.size() + len(names)
        block = sum(each.numel() for each in model.blocks[0].parameters())
        if zero == 3:
            # A block, the table of places, and one element for each of the others.
            assert max(seen) <= block + 16 * 32 + len(names)
            assert next(model.blocks[0].parameters()).isnan().all()
            with pytest.raises(corro.FailedPreconditionError, match=r"call trainer.gather\(\)"):
                model.state_dict()
        else:
            assert min(seen) == whole
        for each in held_by_blocks:
            each.remove()
        trainer.close()


def test_a_state_from_before_is_cut_and_joined_again() -> None:
    steps = batches(4)
    expected, trained = alone(gpt(), next_token, steps)
    for zero in LEVELS:
        model = gpt()
        optimizer = adam(model)
        with sharded(model, optimizer, 0, next_token, steps[0]) as trainer:
            losses = [trainer.step(each) for each in steps[:2]]
        with sharded(model, optimizer, zero, next_token, steps[0]) as trainer:
            losses.append(trainer.step(steps[2]))
        shapes = [each["exp_avg"].shape for each in optimizer.state.values()]
        assert sorted(shapes) == sorted(each.shape for each in trained.parameters())
        with sharded(model, optimizer, 0, next_token, steps[0]) as trainer:
            losses.append(trainer.step(steps[3]))
        assert losses == pytest.approx(expected, abs=1e-5), zero


def test_what_the_user_changes_between_steps_counts() -> None:
    def halve(model: nn.Module) -> None:
        with torch.no_grad():
            for each in model.parameters():
                each.mul_(0.5)

    for zero in (0, *LEVELS):
        losses = []
        for level in (0, zero):
            model = gpt()
            trainer = sharded(model, adam(model), level, next_token, batches()[0])
            losses.append([trainer.step(batches()[0])])
            halve(trainer.gather())
            losses[-1].append(trainer.step(batches()[1]))
            trainer.close()
        assert losses[0] == pytest.approx(losses[1], abs=1e-5), zero


class Odd(nn.Module):
    """Convolutions in another order of memory, a user's checkpoint, layers that may be skipped."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Conv2d(3, 5, 3, padding=1).to(memory_format=torch.channels_last)
        self.layers = nn.ModuleList(nn.Conv2d(5, 5, 3, padding=1) for _ in range(4))
        self.unused = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.skips = False

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        for number, layer in enumerate(self.layers):
            if number == 2 and self.skips:
                continue
            if number == 1:
                x = x + checkpoint(layer, x, use_reentrant=self.reentrant).relu()
            else:
                x = x + layer(x).relu()
        return x * self.scale


@pytest.mark.parametrize("reentrant", [False, True])
def test_odd_models(reentrant: bool) -> None:
    def make() -> nn.Module:
        torch.manual_seed(SEED)
        return Odd(reentrant)

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        model.skips = bool(x.shape[-1] == 6)
        return model(x).square().mean()

    random = torch.Generator().manual_seed(3)
    steps = [torch.randn(8, 3, size, size, generator=random) for size in (8, 6, 8, 6)]
    steps.append(torch.randn(1, 3, 8, 8, generator=random))
    check_as_one_process(make, loss, steps)


class Residual(nn.Module):
    """A layer that may be inside of a user's reentrant checkpoint."""

    def __init__(self, checkpoints: bool) -> None:
        super().__init__()
        self.checkpoints = checkpoints
        self.inner = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        if self.checkpoints:
            return x + checkpoint(self.inner, x, use_reentrant=True).relu()
        return x + self.inner(x).relu()


def test_ranks_of_stages_keep_parts_while_micro_batches_are_in_flight() -> None:
    if corro.size() < 4:
        pytest.skip("two stages of two ranks")

    def make() -> nn.Module:
        torch.manual_seed(SEED)
        return nn.Sequential(*(Residual(number in (1, 4)) for number in range(6)))

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).square().mean()

    check_as_one_process(gpt, next_token, batches(8), stages=2)
    random = torch.Generator().manual_seed(3)
    steps = [torch.randn(size, 16, generator=random) for size in (8, 8, 3, 1, 8)]
    check_as_one_process(make, loss, steps, stages=2)


def test_parameters_whose_memory_others_have_stay_there() -> None:
    """Memory that numpy has seen cannot be freed, so ZeRO 3 gathers into other memory."""
    expected, _ = alone(gpt(), next_token, batches(2))
    model = gpt()
    array = model.blocks[0].qkv.weight.detach().numpy()
    before = array.copy()
    with sharded(model, adam(model), 3, next_token, batches()[0]) as trainer:
        losses = [trainer.step(each) for each in batches(2)]
    assert losses == pytest.approx(expected, abs=1e-5)
    assert (array == before).all()


def test_optimizers_that_look_at_whole_parameters_are_refused() -> None:
    class Own(torch.optim.SGD):
        pass

    model = gpt()
    with pytest.raises(corro.InvalidArgumentError, match=r"zero 1 needs an optimizer .*\.Own"):
        sharded(model, Own(model.parameters(), 0.1), 1, next_token, batches()[0])
    trainer = corro.parallelize(
        model, Own(model.parameters(), 0.1), next_token, batches()[0], machines()
    )
    assert trainer.plan.decisions.shape.zero == 0
    trainer.close()


def test_shards_let_a_model_train_that_does_not_fit() -> None:
    if corro.size() == 1:
        pytest.skip("one rank has all")
    model = gpt()
    whole = 16.0 * sum(each.numel() for each in model.parameters())  # Adam's, in f32.
    small = machines(f"{int(whole * 0.95)} B")
    pins = {"tensor": 1, "pipeline": 1, "micro_batch": 1}
    with pytest.raises(corro.ResourceExhaustedError):
        corro.parallelize(
            model, adam(model), next_token, batches()[0], small, pins={**pins, "zero": 0}
        )
    trainer = corro.parallelize(model, adam(model), next_token, batches()[0], small, pins=pins)
    assert trainer.plan.decisions.shape.zero > 0
    assert "ZeRO" in trainer.why
    trainer.step(batches()[0])
    trainer.close()
