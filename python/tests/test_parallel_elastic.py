"""corro.parallelize() in elastic jobs: ranks are killed and come; real processes.

Losses are those of one process, so nothing is lost, and nothing is done twice.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Launch
from elastic_jobs import STEPS, Elastic, Facts, Ran, Worker, starter
from parallel_training import adam, alone, batches, gpt, next_token
from torch import nn

pytestmark = [pytest.mark.faults, pytest.mark.beside]

STAGES = {"pipeline": 2, "data": 2, "zero": 0}
MOST_PLANS = 10
"""Questions to the planner when the world changes: with pins and less, each way to run a plan."""


@functools.cache
def losses_of_one_process() -> list[float]:
    def decaying(model: nn.Module) -> torch.optim.Optimizer:
        optimizer = adam(model)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        optimizer.register_step_post_hook(lambda *_: scheduler.step())
        return optimizer

    return list(alone(gpt(0.2), next_token, batches(STEPS), make_optimizer=decaying)[0])


PARALLEL = Worker("parallel_elastic_worker.py", losses_of_one_process)


@pytest.fixture
def elastic_parallel(launch: Launch, tmp_path: Path) -> Any:
    """Returns what runs a scenario of ranks that train by a plan."""
    return starter(launch, tmp_path, PARALLEL)


def check(
    ran: Ran, sizes: list[int], *survivors: int, joiners: int = 0, within: float = 1e-6
) -> None:
    """All who are there at the end have done all steps, each in a world of that size."""
    ran.job.check()
    assert len(ran.joiners) == joiners
    ends: list[Facts] = [ran.end(rank) for rank in survivors]
    ends += [facts for said in ran.joiners for facts in said if "end" in facts]
    assert len(ends) == sizes[-1], ran.job.output
    for end in ends:
        assert end["seen"] == sizes, "a step was lost or repeated"
        assert end["losses"] == pytest.approx(
            PARALLEL.parameters_of_one_process(), rel=within, abs=1e-5
        )


def test_ranks_are_lost_until_one_is_left(elastic_parallel: Elastic) -> None:
    """At first replicas have what is lost; later ranks are alone with their parts."""
    kills = {3: (3, "backward"), 0: (6, "stepped"), 2: (9, "between")}
    ran = elastic_parallel("steps", 4, kills, "--min-np", "1", PINS=json.dumps(STAGES))
    sizes = ran.end(1)["seen"]
    check(ran, [4] * 3 + [3] * 3 + sizes[6:7] + [2] * 3 + [1] * (STEPS - 10), 1)


def test_a_step_that_some_have_made_is_not_lost(elastic_parallel: Elastic) -> None:
    """All have their gradients by then, and make it, too."""
    ran = elastic_parallel("steps", 4, {3: (5, "step")}, "--min-np", "2", PINS=json.dumps(STAGES))
    sizes = ran.end(0)["seen"]
    assert sizes[5] in (3, 4)
    check(ran, [4] * 5 + [sizes[5]] + [3] * (STEPS - 6), 0, 1, 2)


@pytest.mark.parametrize("zero", [1, 3])
def test_parts_that_are_lost_have_copies(elastic_parallel: Elastic, zero: int) -> None:
    pins = {"data": 3, "zero": zero}
    kills = {1: (4, "forward"), 2: (8, "stepped")}
    ran = elastic_parallel("steps", 3, kills, "--min-np", "1", PINS=json.dumps(pins))
    check(ran, [3] * 4 + [2] * 4 + [1] * (STEPS - 8), 0)


def test_events_say_how_training_is_beside_its_plan(
    elastic_parallel: Elastic, tmp_path: Path
) -> None:
    events = tmp_path / "events.jsonl"
    options = ("--min-np", "2", "--events", str(events))
    elastic_parallel("steps", 2, {}, *options, LOOK="5").job.check()
    said = [json.loads(line) for line in events.read_text().splitlines()]
    training = [each for each in said if each["event"] == "training"]
    assert training[0]["step"] == 6
    assert training[0]["rank"] == 0
    assert "planned: compute " in training[0]["cause"]
    again = [each["cause"] for each in training if "more than planned: " in each["cause"]]
    assert len(again) >= 1


def test_main_weights_that_are_lost_have_copies(elastic_parallel: Elastic) -> None:
    """The model is in bfloat16, so that losses are one process's in f32 to its 8 bits."""
    pins, kills = {"data": 3, "zero": 3}, {1: (4, "forward"), 2: (8, "stepped")}
    ran = elastic_parallel("steps", 3, kills, "--min-np", "1", PINS=json.dumps(pins), MAINS="")
    check(ran, [3] * 4 + [2] * 4 + [1] * (STEPS - 8), 0, within=0.02)


def test_divided_tensors_are_put_together_from_copies(elastic_parallel: Elastic) -> None:
    """Three ranks divide nothing, nor does one."""
    pins = {"tensor": 2, "pipeline": 1, "zero": 1}
    kills = {3: (3, "forward"), 0: (6, "stepped"), 2: (9, "between")}
    ran = elastic_parallel("steps", 4, kills, "--min-np", "1", PINS=json.dumps(pins))
    sizes = ran.end(1)["seen"]
    check(ran, [4] * 3 + [3] * 3 + sizes[6:7] + [2] * 3 + [1] * (STEPS - 10), 1)
    assert [facts["plan"][3] for facts in ran.of(1, "plan")] == [2, 1, 2, 1]


def test_divided_tensors_of_a_lost_rank_are_those_of_another(elastic_parallel: Elastic) -> None:
    pins = {"tensor": 2, "data": 2, "zero": 0}
    ran = elastic_parallel("steps", 4, {3: (3, "backward")}, "--min-np", "2", PINS=json.dumps(pins))
    check(ran, [4] * 3 + [3] * (STEPS - 3), 0, 1, 2)


@pytest.mark.parametrize("level", ["optimizer", "weights"])
def test_what_is_offloaded_moves(elastic_parallel: Elastic, tmp_path: Path, level: str) -> None:
    """Files of ranks that are left are read; what a lost one had in files has copies.

    The last one, with nobody beside it, has all in files.
    """
    folder = tmp_path / "disk"
    folder.mkdir()
    pins = {"data": 3, "offload": level}
    kills = {1: (4, "forward"), 2: (8, "stepped")}
    ran = elastic_parallel(
        "steps", 3, kills, "--min-np", "1", PINS=json.dumps(pins), OFFLOAD=str(folder)
    )
    check(ran, [3] * 4 + [2] * 4 + [1] * (STEPS - 8), 0)
    assert [facts["offload"] for facts in ran.of(0, "plan")] == [level] * 3
    assert not list(folder.iterdir()), "a killed rank has left files"


def test_fewer_ranks_offload_what_more_have_memory_for(elastic_parallel: Elastic) -> None:
    """To a file system in memory. Who joins brings memory, so that nothing is offloaded again."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        ran = elastic_parallel(
            *("steps", 2, {1: (3, "backward")}, "--min-np", "1", "--max-np", "2"),
            **{"OFFLOAD": folder, "LIMIT": "600 kB", "GATE": "9"},
        )
        assert not list(Path(folder).iterdir())
    check(ran, [2] * 3 + [1] * 7 + [2] * (STEPS - 10), 0, joiners=1)
    assert [facts["offload"] != "off" for facts in ran.of(0, "plan")] == [False, True, False]


def test_what_is_offloaded_is_read_from_the_newest_checkpoint(
    elastic_parallel: Elastic, tmp_path: Path
) -> None:
    kills = {1: (7, "between"), 2: (7, "between")}
    ran = elastic_parallel(
        *("steps", 3, kills, "--min-np", "1"),
        PINS='{"offload": "weights"}',
        OFFLOAD=str(tmp_path),
        CHECKPOINTS=str(tmp_path / "checkpoints"),
    )
    assert "going back to the checkpoint of step 5" in ran.job.output
    check(ran, [3] * 5 + [1] * (STEPS - 5), 0)


def test_parts_that_are_lost_with_their_copies_are_read_from_the_newest_checkpoint(
    elastic_parallel: Elastic, tmp_path: Path
) -> None:
    pins = {"pipeline": 3, "data": 1}
    folder = str(tmp_path / "checkpoints")
    # Both at once: what rank 1 had was kept by rank 2.
    kills = {1: (7, "between"), 2: (7, "between")}
    ran = elastic_parallel(
        "steps", 3, kills, "--min-np", "1", PINS=json.dumps(pins), CHECKPOINTS=folder
    )
    ran.job.check()
    assert "going back to the checkpoint of step 5" in ran.job.output
    check(ran, [3] * 5 + [1] * (STEPS - 5), 0)


def test_parts_that_are_lost_with_their_copies_end_the_job_with_the_reason(
    elastic_parallel: Elastic,
) -> None:
    kills = {1: (7, "between"), 2: (7, "between")}
    ran = elastic_parallel("steps", 3, kills, "--min-np", "1", PINS='{"pipeline": 3, "data": 1}')
    assert ran.job.code != 0
    assert "and there is no checkpoint to go back to" in ran.job.output


def test_a_rank_joins_a_pipeline(elastic_parallel: Elastic) -> None:
    ran = elastic_parallel("steps", 2, {}, "--max-np", "3", PINS='{"pipeline": 2}', GATE="5")
    check(ran, [2] * 6 + [3] * (STEPS - 6), 0, 1, joiners=1)


def test_a_killed_rank_is_replaced(elastic_parallel: Elastic) -> None:
    options = ("--min-np", "2", "--max-np", "3")
    kills = {1: (3, "backward")}
    ran = elastic_parallel("steps", 3, kills, *options, PINS='{"data": 3, "zero": 0}', GATE="9")
    check(ran, [3] * 3 + [2] * 7 + [3] * (STEPS - 10), 0, 2, joiners=1)


def test_planning_again_takes_little_work(elastic_parallel: Elastic) -> None:
    """Rank 0 asks the planner a few times, and others never; no model is recorded again.

    Links are measured if a rank joins; what a rank is, by that one alone.
    """
    kills, pins = {1: (3, "backward")}, {"data": 3, "zero": 1}  # Which two ranks do not allow.
    options = ("--min-np", "2", "--max-np", "3")
    told = {"PINS": json.dumps(pins), "GATE": "9", "MEASURES": ""}
    ran = elastic_parallel("steps", 3, kills, *options, **told)
    check(ran, [3] * 3 + [2] * 7 + [3] * (STEPS - 10), 0, 2, joiners=1)
    once = {"recordings": 1, "measurements": 1}
    for rank in (0, 2):
        begun, lost, joined = (facts["work"] for facts in ran.of(rank, "plan"))
        plans = [each.pop("plans", 0) for each in (begun, lost, joined)]
        assert begun == lost == once | {"links": 1}
        assert joined == once | {"links": 2}
        assert plans[0] <= plans[1] <= plans[0] + MOST_PLANS
        assert plans[1] <= plans[2] <= plans[1] + MOST_PLANS
        assert any(plans) == (rank == 0)
    (work,) = (facts["work"] for facts in ran.joiners[0] if "plan" in facts)
    assert work == once | {"links": 1}
