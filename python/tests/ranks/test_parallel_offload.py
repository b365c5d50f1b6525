"""corro.parallelize() with offload: what lies in files is trained as what lies in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from parallel_training import STEPS, adam, alone, batches, gpt, machines, next_token, with_disk
from torch import nn

import corro
from corro import _context
from corro.checkpoint import Checkpointer
from corro.torch.parallel import Trainer, TrainerState
from corro.torch.parallel.alike import differing

pytestmark = pytest.mark.usefixtures("job", "one_thread")

LEVELS = ("optimizer", "gradients", "weights")
ZERO = {"off": 3, "optimizer": 1, "gradients": 2, "weights": 3}


def offloaded(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    folder: Path,
    level: str = "weights",
    stages: int = 1,
    **options: Any,
) -> Trainer:
    pins = {"pipeline": stages, "micro_batch": 2, "offload": level}
    if corro.size() > stages:
        pins["zero"] = ZERO[level]
    options = {"resources": with_disk(), "pins": pins, "offload": folder, **options}
    return corro.parallelize(model, optimizer, next_token, batches()[0], **options)


def plans() -> Iterator[tuple[str, int, int]]:
    """Levels, stages and steps: all levels of one stage, weights of several."""
    for level in LEVELS:
        yield level, 1, STEPS
    if corro.size() > 1:
        yield "weights", corro.size(), STEPS // 4
    if corro.size() > 2:
        yield "weights", corro.size() // 2, STEPS // 4


def test_every_level_gives_the_losses_of_one_process(tmp_path: Path) -> None:
    expected, trained = alone(gpt(0.1), next_token, batches())
    for level, stages, steps in plans():
        model = gpt(0.1)
        with offloaded(model, adam(model), tmp_path, level, stages) as trainer:
            losses = [trainer.step(batch) for batch in batches(steps)]
            assert not os.listdir(tmp_path)
        assert losses == pytest.approx(expected[:steps], abs=1e-5), (level, stages)
        if steps < STEPS:
            continue
        found, wanted = (next_token(each.eval(), batches()[0]).item() for each in (model, trained))
        assert found == pytest.approx(wanted, abs=1e-5), (level, stages)


def pair() -> tuple[str, str]:
    """Two levels that compute alike: in memory, or a part of it, and offloaded."""
    return ("off" if corro.size() > 1 else "optimizer"), "weights"


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), 0.1),
    "groups": lambda model: torch.optim.AdamW(
        [
            {"params": list(model.parameters())[3:], "lr": 1e-4},
            {"params": list(model.parameters())[:3], "weight_decay": 0.0, "amsgrad": True},
        ],
        1e-3,
    ),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_step_what_is_offloaded_as_what_is_in_memory(
    optimizer: str, tmp_path: Path
) -> None:
    found = []
    for level in pair():
        model = gpt()
        with offloaded(model, OPTIMIZERS[optimizer](model), tmp_path, level) as trainer:
            found.append([trainer.step(batch) for batch in batches(3)])
    assert found[0] == found[1]


def test_main_weights_are_offloaded(tmp_path: Path) -> None:
    found = []
    for level in pair():
        model = gpt().bfloat16()
        trainer = offloaded(model, adam(model), tmp_path, level, main_weights=True, max_norm=1.0)
        with trainer:
            found.append([trainer.step(batch) for batch in batches(3)])
            lines = {line.name: line.measured for line in trainer.report().memory[0]}
    assert lines["optimizer"] == 0
    assert found[0] == found[1]


def test_memory_has_what_a_call_needs(tmp_path: Path) -> None:
    model = gpt()
    trainer = offloaded(model, adam(model), tmp_path)
    # What every rank has of its own is gone at once: together it may be more than there is.
    assert next(model.blocks[0].parameters()).isnan().all()
    for batch in batches(2):
        trainer.step(batch)
    elements = sum(each.numel() for each in model.parameters())
    (lines,) = trainer.report().memory
    measured = {line.name: line.measured for line in lines}
    assert measured["optimizer"] == 0
    assert measured["weights"] == measured["gradients"] < 4 * elements
    assert 0 < measured["buffers"] < measured["offloaded"]
    assert measured["offloaded"] >= 16 * elements / corro.size()
    trainer.close()


def test_rank_0_has_the_parameters_that_count(tmp_path: Path) -> None:
    expected, _ = alone(gpt(), next_token, batches(2))
    model = gpt()
    with torch.no_grad():
        model.blocks[0].qkv.weight.add_(corro.rank())
    with offloaded(model, adam(model), tmp_path) as trainer:
        losses = [trainer.step(batch) for batch in batches(2)]
    assert losses == pytest.approx(expected, abs=1e-5)


def test_a_mapped_model_trains(tmp_path: Path) -> None:
    expected, _ = alone(gpt(tied=False), next_token, batches(2))
    torch.save(gpt(tied=False).state_dict(), tmp_path / "model.pt")
    with torch.device("meta"):
        model = gpt(tied=False)
    state = torch.load(str(tmp_path / "model.pt"), mmap=True)
    model.load_state_dict(state, assign=True)
    assert not differing(state, _context.world())  # So nothing is written to it.
    with offloaded(model, adam(model), tmp_path) as trainer:
        losses = [trainer.step(batch) for batch in batches(2)]
    assert losses == pytest.approx(expected, abs=1e-5)


def test_tensors_of_ranks_are_compared() -> None:
    same, own = torch.ones(3, 2).T, torch.full((2,), float(corro.rank()))
    found = differing({"same": same, "own": own, "none": torch.ones(0)}, _context.world())
    assert list(found) == ([] if corro.size() == 1 else ["own"])


def test_hooks_and_schedulers_see_one_step(tmp_path: Path) -> None:
    model = gpt()
    optimizer = adam(model)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    with offloaded(model, optimizer, tmp_path) as trainer:
        for batch in batches(2):
            trainer.step(batch)
            scheduler.step()
    assert seen == ["before", "after"] * 2
    assert optimizer.param_groups[0]["lr"] == pytest.approx(2.5e-4)


def test_what_the_user_changes_and_loads_counts(tmp_path: Path) -> None:
    found = []
    for level in pair():
        model = gpt()
        optimizer = adam(model)
        with offloaded(model, optimizer, tmp_path, level) as trainer:
            losses = [trainer.step(batches()[0])]
            with torch.no_grad():
                for each in trainer.gather().parameters():
                    each.mul_(0.5)
            losses.append(trainer.step(batches()[1]))
            state = optimizer.state_dict()
            copied = {
                **state,
                "state": {
                    number: {key: value.clone() for key, value in each.items()}
                    for number, each in state["state"].items()
                },
            }
            losses.append(trainer.step(batches()[2]))
            optimizer.load_state_dict(copied)
            losses.append(trainer.step(batches()[3]))
        found.append(losses)
    assert found[0] == found[1]


def test_checkpoints_go_from_plan_to_plan(tmp_path: Path) -> None:
    folder = corro.broadcast_object(str(tmp_path / "run"), 0)
    expected, _ = alone(gpt(), next_token, batches(4))
    losses = []
    for number, level in enumerate(("weights", "off", "gradients", "weights")):
        model = gpt()
        with offloaded(model, adam(model), tmp_path, level) as trainer:
            state = TrainerState(trainer)
            checkpointer = Checkpointer(folder, every=1)
            assert checkpointer.load(state) == (number or None)
            losses.append(trainer.step(batches()[number]))
            checkpointer.save(state)
            checkpointer.close()
    assert losses == pytest.approx(expected, abs=1e-5)


def test_plans_offload_what_fits_into_no_memory(tmp_path: Path) -> None:
    expected, _ = alone(gpt(), next_token, batches(1))
    for memory, fits in (("4 GB", True), ("300 kB", False)):
        model = gpt()
        trainer = offloaded(
            model, adam(model), tmp_path, resources=with_disk(memory), pins={"data": corro.size()}
        )
        with trainer:
            assert (trainer.plan.decisions.shape.offload == "off") == fits
            assert (f"offloaded to files in {tmp_path}" in trainer.why) != fits
            assert [trainer.step(batches()[0])] == pytest.approx(expected, abs=1e-5)


def test_ranks_measure_their_disk(tmp_path: Path) -> None:
    model = gpt()
    with offloaded(model, adam(model), tmp_path, resources=None) as trainer:
        assert trainer.plan.decisions.shape.offload == "weights"
        trainer.step(batches()[0])
        huge = replace(trainer.plan.decisions.stages[0], host=1e18)
        planned = replace(trainer.plan, decisions=replace(trainer.plan.decisions, stages=(huge,)))
        lack = trainer._planning.lack_of_space(planned)
        assert lack is not None
        assert "for this rank, and the plan puts 1000000000.00 GB there" in lack
        assert trainer._planning.has_room(trainer.plan, corro.world())
        assert not trainer._planning.has_room(planned, corro.world())


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"offload": None}, "pins: offload weights needs offload=, a folder on this host"),
        ({"offload": 3}, "offload: a int is no path of a folder"),
        ({"offload": "/none"}, "offload: /none: No such file or directory"),
        ({"offload": __file__}, "test_parallel_offload.py: Not a directory"),
        ({"resources": "machines"}, "resources: no host has to_host_memory"),
        ({"pins": {"offload": "weights", "tensor": 2}}, "tensor 2 does not go with offload"),
        ({"pins": {"offload": "all"}}, "must be one of off, optimizer, gradients, weights"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    options: dict[str, Any], line: str, tmp_path: Path
) -> None:
    given = {**options, "resources": machines()} if "resources" in options else options
    model = gpt()
    with pytest.raises(corro.InvalidArgumentError, match=line):
        offloaded(model, adam(model), tmp_path, **{"offload": tmp_path, **given})


class Own(torch.optim.Adagrad):
    """May step as it likes."""


def test_other_optimizers_and_too_little_memory_are_refused(tmp_path: Path) -> None:
    model = gpt()
    other = Own(model.parameters())
    with pytest.raises(corro.InvalidArgumentError, match="offload weights needs an optimizer of"):
        offloaded(model, other, tmp_path, pins={"offload": "weights"})
    with pytest.raises(corro.ResourceExhaustedError, match="or offload=, a folder on a disk"):
        offloaded(
            *(model, adam(model), tmp_path),
            **{"resources": with_disk("300 kB"), "pins": {"tensor": 1}, "offload": None},
        )
