"""Sharded models in elastic jobs: a rank that is lost takes its part along, and the others have it.

Ranks are real processes. What FSDP2 has made is thrown away in each epoch, and made again.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import Launch
from elastic_jobs import SHARDED, STEPS, Elastic, Facts, Ran, starter
from elastic_member import be_no_rank
from torch import nn
from torch_version import needs_new

import corro.torch as corro
from corro.torch.copies import shift_of

pytestmark = [pytest.mark.faults, pytest.mark.beside, needs_new]


@pytest.fixture
def elastic_sharded(launch: Launch, tmp_path: Path) -> Any:
    """Returns what runs a scenario of ranks that have a model together."""
    return starter(launch, tmp_path, SHARDED)


def check(ran: Ran, sizes: list[int], *survivors: int, joiners: int = 0) -> None:
    """All who are there at the end have done all steps, each in a world of that size."""
    ran.job.check()
    assert len(ran.joiners) == joiners
    ends: list[Facts] = [ran.end(rank) for rank in survivors]
    ends += [facts for said in ran.joiners for facts in said if "end" in facts]
    assert len(ends) == sizes[-1]
    for end in ends:
        assert end["parameters"] == pytest.approx(SHARDED.parameters_of_one_process(), abs=1e-5)
        assert end["seen"] == sizes, "a step was lost or repeated"
    assert len({end["digest"] for end in ends}) == 1
    # No rank keeps more than its own part and one of another, each of half the state or so.
    floats = len(SHARDED.parameters_of_one_process())
    assert all(end["kept"] < 2 * 3 * 4 * floats for end in ends)


def test_the_others_go_on_without_the_parts_of_killed_ranks_until_one_is_left(
    elastic_sharded: Elastic,
) -> None:
    """The killed one is in the middle, first, last, first, and last again."""
    kills = {
        1: (3, "backward"),
        0: (5, "stepped"),
        5: (7, "between"),  # After the commit.
        2: (10, "step"),
        4: (12, "forward"),
    }
    ran = elastic_sharded("steps", 6, kills, "--min-np", "1")
    check(ran, [6] * 3 + [5] * 2 + [4] * 3 + [3] * 2 + [2] * 2 + [1] * (STEPS - 12), 3)


def test_steps_behind_the_last_commit_are_done_again(elastic_sharded: Elastic) -> None:
    ran = elastic_sharded("steps", 3, {1: (7, "backward")}, "--min-np", "2", COMMIT_EVERY="3")
    check(ran, [3] * 6 + [2] * (STEPS - 6), 0, 2)


def test_a_mesh_with_replicas_becomes_one_without(elastic_sharded: Elastic) -> None:
    ran = elastic_sharded("steps", 4, {2: (7, "step")}, "--min-np", "2", REPLICAS="1")
    check(ran, [4] * 7 + [3] * (STEPS - 7), 0, 1, 3)


def test_what_follows_is_what_two_ranks_do_from_a_checkpoint_of_that_step(
    launch: Launch, tmp_path: Path
) -> None:
    checkpoints = tmp_path / "checkpoints"
    options = {"CHECKPOINTS": str(checkpoints), "EVERY": "7"}
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    ran = starter(launch, first, SHARDED)(
        "steps", 3, {1: (7, "backward")}, "--min-np", "2", **options
    )
    check(ran, [3] * 7 + [2] * (STEPS - 7), 0, 2)
    shutil.rmtree(checkpoints / "step-14")
    again = starter(launch, second, SHARDED)("steps", 2, {}, **options)
    check(again, [3] * 7 + [2] * (STEPS - 7), 0, 1)
    assert again.of(0, "loaded") == [{"loaded": 7}]
    assert again.end(0)["digest"] == ran.end(0)["digest"]


def test_a_rank_joins_and_gets_a_part(elastic_sharded: Elastic) -> None:
    ran = elastic_sharded("steps", 2, {}, "--max-np", "3", GATE="5")
    check(ran, [2] * 6 + [3] * (STEPS - 6), 0, 1, joiners=1)


def test_a_killed_rank_is_replaced(elastic_sharded: Elastic) -> None:
    options = ("--min-np", "2", "--max-np", "3")
    ran = elastic_sharded("steps", 3, {1: (3, "backward")}, *options, GATE="9")
    check(ran, [3] * 3 + [2] * 7 + [3] * (STEPS - 10), 0, 2, joiners=1)


def test_a_rank_is_lost_while_the_next_epoch_begins(elastic_sharded: Elastic) -> None:
    kills = {1: (5, "backward"), 3: (-1, "reset")}
    ran = elastic_sharded("steps", 4, kills, "--min-np", "2")
    check(ran, [4] * 5 + [2] * (STEPS - 5), 0, 2)


def test_a_part_that_is_lost_with_its_copy_ends_the_job_with_the_reason(
    elastic_sharded: Elastic,
) -> None:
    ran = elastic_sharded("steps", 3, {1: (7, "backward")}, "--min-np", "1", ALONG="2")
    assert ran.job.code != 0
    assert (
        "the part of rank 1 of the state after 7 steps is lost: the rank, of the 3 in epoch 0, and"
        " the one that kept its copy; and there is no checkpoint to go back to"
    ) in ran.job.output


def test_a_part_that_is_lost_with_its_copy_is_read_from_the_newest_checkpoint(
    elastic_sharded: Elastic, tmp_path: Path
) -> None:
    options = {"CHECKPOINTS": str(tmp_path / "checkpoints"), "EVERY": "5", "ALONG": "2"}
    kills = {1: (7, "backward"), 0: (11, "step")}
    ran = elastic_sharded("steps", 4, kills, "--min-np", "1", **options)
    check(ran, [4] * 5 + [2] * 6 + [1] * (STEPS - 11), 3)
    assert "kept its copy: going back to the checkpoint of step 5" in ran.job.output


def test_a_rank_that_is_asked_to_end_leaves_and_no_step_is_lost(elastic_sharded: Elastic) -> None:
    ran = elastic_sharded("steps", 3, {1: (7, "forward")}, "--min-np", "2", SIGNAL="SIGTERM")
    sizes = ran.end(0)["seen"]
    check(ran, sizes, 0, 2)
    assert sizes[:8] == [3] * 8
    assert sizes[-1] == 2
    for rank, steps in (0, STEPS), (1, sizes.count(3)), (2, STEPS):
        stepped = [facts["stepped"] for facts in ran.of(rank, "stepped")]
        assert stepped == list(range(steps)), "a step was lost"


def test_all_that_are_asked_to_end_leave_a_checkpoint_to_go_on_from(
    launch: Launch, tmp_path: Path
) -> None:
    options = {"CHECKPOINTS": str(tmp_path / "checkpoints"), "EVERY": "100"}
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    kills = {1: (7, "forward")}
    ran = starter(launch, first, SHARDED)(
        "steps", 2, kills, "--min-np", "2", SIGNAL="SIGTERM", **options
    )
    assert ran.job.code == 75, ran.job.output
    again = starter(launch, second, SHARDED)("steps", 3, {}, **options)
    (loaded,) = (facts["loaded"] for facts in again.of(0, "loaded"))
    assert loaded >= 8
    check(again, [2] * loaded + [3] * (STEPS - loaded), 0, 1, 2)


def test_a_group_that_does_not_go_on_is_refused(elastic_sharded: Elastic) -> None:
    ran = elastic_sharded("steps", 2, {}, "--min-np", "1", BACKEND="gloo", CORRO_TORCH="keep")
    assert ran.job.code != 0
    assert 'torch\'s default process group is over "gloo", and does not go on' in ran.job.output


def test_a_job_that_is_not_elastic_keeps_no_copies(elastic_sharded: Elastic) -> None:
    ran = elastic_sharded("steps", 2, {})
    check(ran, [2] * STEPS, 0, 1)
    assert ran.end(0)["kept"] == 0


def test_what_make_has_to_return_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    be_no_rank(monkeypatch)
    corro.init()

    def plain() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Linear(2, 2)
        return model, torch.optim.SGD(model.parameters())

    try:
        with pytest.raises(corro.InvalidArgumentError, match="make is a int"):
            corro.elastic.ShardedState(3)  # type: ignore[arg-type]
        with pytest.raises(corro.InvalidArgumentError, match="a model that is not sharded"):
            _ = corro.elastic.ShardedState(plain).model
        with pytest.raises(corro.InvalidArgumentError, match="can be named 'optimizer'"):
            corro.elastic.ShardedState(plain, optimizer=1)
    finally:
        dist.destroy_process_group()
        corro.shutdown()


@pytest.mark.parametrize(
    ("nodes", "shift"),
    [([0, 0], 1), ([0, 1], 1), ([0, 0, 1, 1], 2), ([0, 0, 0, 1, 1, 1], 3), ([0, 0, 0, 1], 1)],
)
def test_copies_are_kept_on_another_host(nodes: list[int], shift: int) -> None:
    assert shift_of(nodes) == shift
