"""A trainer that moves to another plan in the middle of its training: as one process trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from parallel_training import adam, alone, batches, gpt, machines, next_token, with_disk
from torch import Tensor, nn

import corro
from corro._objects import allgather_object
from corro.torch.parallel import Trainer
from corro.torch.parallel.moving import Offer, boxes_of, move
from corro.torch.parallel.planning import agreed_plan

pytestmark = pytest.mark.usefixtures("job", "one_thread")

STEPS = 12


def plans() -> list[dict[str, object]]:
    """Plans of this many ranks, of which each follows the one before."""
    ranks = corro.size()
    of_pairs: list[dict[str, object]] = [
        {"pipeline": 2, "data": ranks // 2, "zero": 1},
        {"tensor": 2, "data": ranks // 2, "zero": 0},
        {"tensor": ranks, "zero": 0, "sequence_parallel": False},
        {"tensor": 2, "pipeline": ranks // 2, "zero": 0},
        {"tensor": 2, "data": ranks // 2, "zero": 2},
        {"tensor": 2, "data": ranks // 2, "zero": 3},
    ]
    return [
        {"pipeline": ranks, "zero": 0},
        {"data": ranks, "zero": 0},
        {"data": ranks, "zero": 2},
        {"pipeline": ranks, "zero": 0, "micro_batch": 1},
        {"data": ranks, "zero": 3, "micro_batch": 1},
        {"data": ranks, "zero": 1},
        *(of_pairs if ranks % 2 == 0 else ()),
    ]


def plans_with_parts() -> list[dict[str, Any]]:
    return [{"zero": 3, "pipeline": 1}, {"tensor": 2, "zero": 0}]


def offloading_plans() -> list[dict[str, object]]:
    """Plans of which each offloads something else than the one before, or nothing."""
    ranks = corro.size()
    of_stages = [{"offload": "weights", "pipeline": ranks, "micro_batch": 1}] * (ranks > 1)
    return [
        {"offload": "weights", "pipeline": 1},
        {"offload": "optimizer", "pipeline": 1},
        {"data": ranks, "zero": 3 if ranks > 1 else 0},
        *of_stages,
        {"offload": "gradients", "pipeline": 1},
        {"offload": "weights", "pipeline": 1, "micro_batch": 1},
        {"data": ranks, "zero": 0},
    ]


def follow(
    trainer: Trainer, pins: dict[str, object], resources: dict[str, object] | None = None
) -> None:
    group = corro.world()
    strategies = ("data", "pipeline", "sharding", "tensor", "sequence", "offload")
    planned, choices = agreed_plan(
        *(trainer._recording, group, resources or machines(), "time", pins, None, strategies),
        trainer._planning._choices,
    )
    offer = Offer(boxes_of(trainer))
    assert not offer.lack(trainer)
    move(trainer, planned, choices, group, offer.read())


def train(model: nn.Module, make_optimizer: Any, pins: list[dict[str, object]]) -> Any:
    optimizer, losses = make_optimizer(model), []
    with corro.parallelize(
        model, optimizer, next_token, batches()[0], machines(), pins=pins[0]
    ) as trainer:
        for number, batch in enumerate(batches(STEPS)):
            if number:
                follow(trainer, pins[number % len(pins)])
                shape = trainer.plan.decisions.shape
                assert shape.data in (1, corro.size(), corro.size() // 2)
                assert bool(trainer._parts.names) == (shape.tensor > 1)
            losses.append(trainer.step(batch))
    return losses


@pytest.mark.parametrize("tied", [False, True])
def test_a_training_that_moves_loses_nothing(tied: bool) -> None:
    expected, trained = alone(gpt(0.2, tied), next_token, batches(STEPS))
    model = gpt(0.2, tied)
    assert train(model, adam, plans()) == pytest.approx(expected, abs=1e-5)
    found, wanted = (next_token(each.eval(), batches()[0]).item() for each in (model, trained))
    assert found == pytest.approx(wanted, abs=1e-5)


def mapped(folder: Path) -> int:
    """Returns how many files of a folder this process has mapped."""
    return sum(f"{folder}/" in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.parametrize("is_low", [False, True])
def test_what_is_offloaded_moves(is_low: bool, tmp_path: Path) -> None:
    """With all that there is of it, and to files of the next plan; those of the last are gone."""
    pins, steps = offloading_plans(), 8
    expected, _ = alone(gpt(0.2), next_token, batches(steps))
    model, losses = gpt(0.2), []
    if is_low:
        model.bfloat16()
    optimizer = adam(model)
    with corro.parallelize(
        *(model, optimizer, next_token, batches()[0], with_disk()),
        pins=pins[0],
        offload=tmp_path,
        main_weights=is_low,
    ) as trainer:
        for number, batch in enumerate(batches(steps)):
            if number:
                follow(trainer, pins[number % len(pins)], with_disk())
                level = pins[number % len(pins)].get("offload", "off")
                assert trainer.plan.decisions.shape.offload == level
                away = [each.offloaded for each in trainer._sharding.shards if each.offloaded]
                assert bool(away) == (level != "off")
                # Just these: nothing of the plan before, nor of the move.
                own = {id(each._file): each for one in away for each in one.blocks}
                assert mapped(tmp_path) == len(own), level
                assert all(each.state is not None for each in away)
            losses.append(trainer.step(batch))
    within = {"rel": 0.02} if is_low else {"abs": 1e-5}
    assert losses == pytest.approx(expected, **within)


@pytest.mark.parametrize("name", ["NAdam", "ASGD", "Rprop", "SGD"])
def test_states_of_all_kinds_move(name: str) -> None:
    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        more = {"momentum": 0.9} if name == "SGD" else {}
        made: torch.optim.Optimizer = getattr(torch.optim, name)(model.parameters(), 1e-3, **more)
        return made

    expected, _ = alone(gpt(), next_token, batches(STEPS), make_optimizer=optimizer)
    assert train(gpt(), optimizer, plans()) == pytest.approx(expected, abs=1e-5)


def test_main_weights_move_with_all_their_bits() -> None:
    def mains_of_all(trainer: Trainer) -> dict[str, Tensor]:
        mains: dict[str, Tensor] = {}
        for each in allgather_object(trainer._main_weights()):
            mains |= each
        return mains

    model = gpt().to(torch.bfloat16)
    trainer = corro.parallelize(
        *(model, adam(model), next_token, batches()[0], machines()),
        pins=plans()[-1],
        main_weights=True,
    )
    for pins, batch in zip(plans(), batches(STEPS), strict=False):
        trainer.step(batch)
        before = mains_of_all(trainer)
        follow(trainer, pins)
        after = mains_of_all(trainer)
        assert before.keys() == after.keys() == dict(model.named_parameters()).keys()
        assert all(torch.equal(before[name], each) for name, each in after.items())
        assert any(bool((each != each.to(torch.bfloat16)).any()) for each in after.values())
        trainer.gather()
        for name, each in model.named_parameters():
            assert torch.equal(each, after[name].to(torch.bfloat16))
        states = trainer.optimizer.state.values()
        assert all(state["exp_avg"].dtype == torch.float32 for state in states)
    hooks = [len(each._post_accumulate_grad_hooks or ()) for each in model.parameters()]
    assert max(hooks) == 1
    trainer.close()
    assert not any(each._post_accumulate_grad_hooks for each in model.parameters())


@pytest.mark.parametrize("pins", plans_with_parts(), ids=str)
def test_what_the_user_changes_before_a_move_counts(pins: dict[str, Any]) -> None:
    """A checkpoint that was loaded, too: the parameters are whole then."""
    if "tensor" in pins and corro.size() % 2:
        pytest.skip("needs pairs of ranks")
    model = gpt()
    trainer = corro.parallelize(
        model, adam(model), next_token, batches()[0], machines(), pins={**pins, "micro_batch": 1}
    )
    trainer.step(batches()[0])
    with torch.no_grad():
        for each in trainer.gather().parameters():
            each.mul_(0.5)
    wanted = {name: each.detach().clone() for name, each in model.named_parameters()}
    follow(trainer, plans()[1])
    for name, each in trainer.gather().named_parameters():
        torch.testing.assert_close(each, wanted[name])
    trainer.close()


def test_the_optimizer_stays_the_users_object() -> None:
    expected, _ = alone(gpt(), next_token, batches(2))
    model = gpt()
    optimizer = adam(model)
    groups = optimizer.param_groups
    names = dict(model.named_parameters())
    trainer = corro.parallelize(
        model, optimizer, next_token, batches()[0], machines(), pins=plans()[0]
    )
    losses = [trainer.step(batches()[0])]
    follow(trainer, plans()[2])
    losses.append(trainer.step(batches()[1]))
    trainer.close()
    assert losses == pytest.approx(expected, abs=1e-5)
    assert optimizer.param_groups is groups
    assert all(names[name] is each for name, each in model.named_parameters())
    assert optimizer.state.keys() == set(model.parameters())


def test_what_ranks_lack_is_said() -> None:
    model = gpt(tied=False)
    trainer = corro.parallelize(
        model, adam(model), next_token, batches()[0], machines(), pins=plans()[0]
    )
    trainer.step(batches()[0])
    nothing: list[Any] = []
    offer = Offer(boxes_of(trainer) if corro.rank() else nothing)
    assert "parameter/" in offer.lack(trainer)
    trainer.close()


def test_buffers_move_with_their_stage() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if torch.is_grad_enabled() and x.device.type != "meta":
                self.seen += 1
            out: Tensor = self.inner(x)
            return out

    def squares(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).square().mean()

    torch.manual_seed(1)
    x = torch.randn(8, 8)
    model = nn.Sequential(*(Counts() for _ in range(4)))
    pins = [{**each, "micro_batch": 1} for each in plans()]
    trainer = corro.parallelize(model, adam(model), squares, x, machines(), pins=pins[0])
    trainer.step(x)
    before = [each.seen.item() for each in trainer.gather()]
    follow(trainer, pins[1])
    assert [each.seen.item() for each in trainer.gather()] == before
    trainer.close()
