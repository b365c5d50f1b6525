"""Steps that take longer than planned: the speeds are corrected, and another plan is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from parallel_training import SEED, adam, alone, batches, gpt, machines, next_token, with_disk
from torch import Tensor, nn

import corro
from corro.torch.parallel import Trainer, drift
from corro.torch.parallel.capability import RankReport
from corro.torch.parallel.links import Link
from corro.torch.parallel.replanning import decided, seconds_of_rank

pytestmark = pytest.mark.usefixtures("job", "one_thread")

STEPS = 6


def equal_machines() -> list[RankReport]:
    link = Link(5e9, 5e-6) if corro.size() > 1 else None
    one = RankReport(
        host=0,
        device="cpu",
        threads=1,
        memory=(("free", 16 << 30),),
        peak={"f32": 80e9},
        memory_bandwidth=1e10,
        disk=1e9,
        disk_left=8e9,
        link=link,
    )
    return [one] * corro.size()


def stages(trainer: Trainer) -> list[int]:
    return [each.end_layer - each.first_layer for each in trainer.plan.decisions.stages]


def planned_times(trainer: Trainer) -> list[drift.Times]:
    """What a step takes on each rank, if all is as planned."""
    terms = trainer.plan.decisions.terms
    return [
        {
            "compute": seconds_of_rank(trainer.plan, rank),
            "weights": terms.weights,
            "sync": terms.sync,
            "update": terms.update,
            "step": trainer.plan.step,
        }
        for rank in range(corro.size())
    ]


def squares(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).square().mean()


def wide() -> nn.Module:
    """Layers whose products take much longer than an operator's beginning."""
    torch.manual_seed(SEED)
    return nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(6)))


def rows() -> Tensor:
    return torch.randn(256, 512, generator=torch.Generator().manual_seed(1))


def make(pins: dict[str, Any], folder: Path | None = None) -> Trainer:
    model = wide()
    cluster = machines("16 GB") if folder is None else with_disk("16 GB")
    trainer = corro.parallelize(
        model, adam(model), squares, rows(), cluster, pins=pins, offload=folder
    )
    trainer._planning.correct(equal_machines(), corro.world())
    return trainer


def slower(trainer: Trainer, factor: float) -> list[drift.Times]:
    """What a step takes where all is as much slower."""
    times = planned_times(trainer)
    return [{key: factor * seconds for key, seconds in each.items()} for each in times]


def slow(trainer: Trainer, rank: int) -> list[drift.Times]:
    """What a step takes where one rank is slow."""
    times = planned_times(trainer)
    times[rank]["compute"] *= 8
    for each in times:
        each["step"] = times[rank]["compute"]
    return times


def test_a_slow_rank_gets_fewer_layers(capfd: pytest.CaptureFixture[str]) -> None:
    if corro.size() != 2:
        pytest.skip("for 2 ranks")
    expected, _ = alone(wide(), squares, [rows()] * STEPS)
    trainer = make({"pipeline": 2, "micro_batch": 64})
    losses = [trainer.step(rows()) for _ in range(3)]
    assert stages(trainer) == [3, 3]
    times = slow(trainer, 0)
    drift.plan_again(trainer, times)
    assert stages(trainer) == [1, 5]
    assert f"after step 3: a step takes {times[0]['step'] * 1e3:.3g} ms" in trainer.why
    assert "more than planned: another plan takes" in trainer.why
    if corro.rank() == 0:
        assert "corro: step 3: a step takes" in capfd.readouterr().err
    losses += [trainer.step(rows()) for _ in range(3)]
    assert losses == pytest.approx(expected, abs=1e-5)
    trainer.close()


def test_a_plan_that_was_faster_comes_back() -> None:
    if corro.size() != 2:
        pytest.skip("for 2 ranks")
    trainer = make({"pipeline": 2, "micro_batch": 64})
    trainer.step(rows())
    first = trainer.plan
    times = slow(trainer, 0)
    drift.plan_again(trainer, times)
    second = trainer.plan
    assert decided(second) != decided(first)
    drift.plan_again(trainer, slower(trainer, 10))  # As the planner cannot know.
    assert decided(trainer.plan) == decided(first)
    assert trainer.plan.step == pytest.approx(times[0]["step"])
    trainer.step(rows())
    trainer.close()


def test_a_machine_that_is_slow_everywhere_keeps_its_plan_and_is_not_asked_again() -> None:
    trainer = make({"data": corro.size(), "zero": 0, "micro_batch": 64})
    trainer.step(rows())
    planned = trainer.plan
    drift.plan_again(trainer, slower(trainer, 3))
    assert decided(trainer.plan) == decided(planned)
    assert "the plan stays" in trainer.why
    assert trainer.plan.step == pytest.approx(3 * planned.step)
    assert trainer._planning.accepted == trainer.plan.step
    trainer.close()


def test_steps_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they take: it is more than nothing."""
    monkeypatch.setattr(drift, "LOOK", 2)
    monkeypatch.setattr(drift, "LIMIT", -1.0)
    model = gpt()
    expected, _ = alone(gpt(), next_token, batches(STEPS))
    with corro.parallelize(
        *(model, adam(model), next_token, batches()[0], machines()),
        strategies=("data", "pipeline", "sharding", "recompute"),
    ) as trainer:
        losses = [trainer.step(each) for each in batches(STEPS)]
        assert "more than planned: " in trainer.why
        assert len(set(corro.allgather_object(trainer.why))) == 1
    assert losses == pytest.approx(expected, abs=1e-5)


def test_who_does_not_want_another_plan_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "LOOK", 1)
    monkeypatch.setattr(drift, "LIMIT", -1.0)
    model = gpt()
    with corro.parallelize(
        model, adam(model), next_token, batches()[0], machines(), replan=False
    ) as trainer:
        planned = trainer.plan
        for batch in batches(STEPS):
            trainer.step(batch)
        assert trainer.plan is planned


@pytest.mark.parametrize("pins", [{"tensor": 2}, {"offload": "weights"}], ids=str)
def test_a_plan_that_divides_tensors_or_offloads_goes_and_comes_back(
    pins: dict[str, Any], tmp_path: Path
) -> None:
    """As its steps, and those of the other one, turn out to be."""
    if corro.size() != 2:
        pytest.skip("for 2 ranks")
    expected, _ = alone(wide(), squares, [rows()] * STEPS)
    trainer = make(pins, tmp_path)
    first, losses = decided(trainer.plan), [trainer.step(rows()) for _ in range(2)]
    trainer._planning._pins = {"data": 2, "zero": 0}
    # Not since ranks compute slowly.
    drift.plan_again(
        trainer, [{**each, "step": 3 * each["step"]} for each in planned_times(trainer)]
    )
    shape = trainer.plan.decisions.shape
    assert (shape.tensor, shape.data, shape.offload) == (1, 2, "off")
    assert ("tensor 2, data 1" if "tensor" in pins else "weights offloaded ->") in trainer.why
    losses += [trainer.step(rows()) for _ in range(2)]
    drift.plan_again(trainer, slower(trainer, 100))
    assert decided(trainer.plan) == first
    losses += [trainer.step(rows()) for _ in range(2)]
    trainer.close()
    assert losses == pytest.approx(expected, abs=1e-5)


def test_steps_of_a_plan_that_divides_tensors_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drift, "LOOK", 2)
    monkeypatch.setattr(drift, "LIMIT", -1.0)
    model = gpt()
    expected, _ = alone(gpt(), next_token, batches(STEPS))
    with corro.parallelize(
        *(model, adam(model), next_token, batches()[0], machines()),
        pins={"tensor": corro.size(), "recompute": "none"},
    ) as trainer:
        losses = [trainer.step(each) for each in batches(STEPS)]
        assert "more than planned: " in trainer.why
        assert trainer.plan.decisions.shape.tensor == corro.size()
    assert losses == pytest.approx(expected, abs=1e-4)


def test_files_are_no_memory(tmp_path: Path) -> None:
    """What lies in them does not count as memory that another plan could use."""
    trainer = make({"offload": "weights"}, tmp_path)
    trainer.step(rows())
    kept = trainer._kept()
    assert kept.pop("offloaded") > 0
    ((_, left),) = drift.with_memory(equal_machines(), trainer)[corro.rank()].memory
    assert left - (16 << 30) == sum(kept.values())
    trainer.close()


def test_speeds_are_corrected_by_what_each_rank_takes() -> None:
    trainer = make({"data": corro.size(), "zero": 0, "micro_batch": 64})
    times = planned_times(trainer)
    times[-1]["compute"] *= 2
    for each in times:
        each["sync"] *= 4
    computing = [seconds_of_rank(trainer.plan, rank) for rank in range(corro.size())]
    sync = trainer.plan.decisions.terms.sync
    found, common = drift.corrected(equal_machines(), computing, sync, times)
    if corro.size() == 1:  # Beside itself it is what it was.
        assert (found[0].peak["f32"], common) == (80e9, pytest.approx(2))
    else:
        assert common == pytest.approx(1)
        assert found[-1].peak["f32"] == pytest.approx(40e9)
        assert found[-1].memory_bandwidth == pytest.approx(5e9)
        assert found[0].peak["f32"] == pytest.approx(80e9)
        link = found[0].link
        assert link is not None
        assert link.bandwidth == pytest.approx(5e9 / 4)
    trainer.close()
