"""Ranks of elastic jobs are killed, and the others go on: real processes.

They train with numpy, since a rank that imports torch takes seconds to start; with torch where its
states, optimizers or groups have to go on.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from elastic_jobs import STEPS, Elastic

pytestmark = [pytest.mark.faults, pytest.mark.beside]


def check_others_go_on(elastic: Elastic, ranks: int, kills: dict[int, tuple[int, str]]) -> None:
    """Kills come one after the other, each some steps after the one before."""
    survivors = [rank for rank in range(ranks) if rank not in kills]
    ran = elastic("steps", ranks, kills, "--min-np", str(len(survivors))).check(*survivors)
    killed_in = [step for step, _ in kills.values()]
    for number, rank in enumerate(survivors):
        end, resets = ran.end(rank), ran.of(rank, "reset")
        assert (end["result"], end["epoch"]) == ("returned", len(kills))
        assert [facts["size"] for facts in resets] == list(range(ranks - 1, len(survivors) - 1, -1))
        assert (end["rank"], end["size"]) == (number, len(survivors))
        assert (resets[-1]["rank"], resets[-1]["size"]) == (number, len(survivors))
        # Nothing is repeated from further back than the step in which a rank was killed.
        for facts in ran.of(rank, "step"):
            if facts["step"] not in killed_in:
                assert facts["size"] == ranks - sum(step < facts["step"] for step in killed_in)


@pytest.mark.parametrize(
    ("victim", "place"),
    [(0, "backward"), (0, "between"), (1, "forward"), (1, "backward"), (1, "step")],
)
def test_the_others_go_on_without_a_killed_rank(elastic: Elastic, victim: int, place: str) -> None:
    check_others_go_on(elastic, 3, {victim: (7, place)})


def test_the_others_go_on_without_a_rank_that_has_ended_well_in_the_middle(
    elastic: Elastic,
) -> None:
    elastic("steps", 3, {1: (7, "forward")}, "--min-np", "2", SIGNAL="EXIT").check(0, 2)


def test_the_launcher_hears_the_name_of_the_plan_of_each_epoch(
    elastic: Elastic, tmp_path: Path
) -> None:
    events = tmp_path / "events.jsonl"
    options = ("--min-np", "2", "--events", str(events))
    elastic("planned", 3, {0: (7, "between")}, *options).check(1, 2)
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    told = [
        (line["epoch"], line["rank"], line["place"], line["cause"])
        for line in lines
        if line["event"] == "plan"
    ]
    assert told == [(0, 0, 0, "3 ranks"), (1, 0, 1, "2 ranks")]


def test_the_others_go_on_with_torch(elastic_torch: Elastic) -> None:
    check_others_go_on(elastic_torch, 5, {0: (3, "between"), 2: (7, "backward"), 3: (11, "step")})


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_ranks_are_lost_until_one_is_left(elastic: Elastic, transport: str) -> None:
    kills = {0: (3, "backward"), 2: (9, "forward")}
    ran = elastic("steps", 3, kills, "--min-np", "1", CORRO_TRANSPORT=transport).check(1)
    assert [facts["size"] for facts in ran.of(1, "reset")] == [2, 1]
    assert ran.end(1)["epoch"] == 2


def test_two_ranks_are_lost_at_once(elastic: Elastic) -> None:
    kills = {1: (5, "backward"), 2: (5, "forward")}
    ran = elastic("steps", 4, kills, "--min-np", "2").check(0, 3)
    assert ran.end(3)["size"] == 2


def test_a_rank_is_lost_before_the_first_epoch_has_begun(elastic: Elastic) -> None:
    ran = elastic("steps", 3, {1: (-1, "start")}, "--min-np", "2").check(0, 2)
    assert (ran.end(2)["rank"], ran.end(2)["size"]) == (1, 2)
    assert not ran.of(2, "reset")


def test_a_rank_is_lost_while_the_next_epoch_begins(elastic: Elastic) -> None:
    kills = {1: (5, "backward"), 2: (-1, "reset")}
    ran = elastic("steps", 4, kills, "--min-np", "2").check(0, 3)
    assert ran.end(0)["size"] == 2


def test_a_rank_is_lost_while_others_join_the_next_epoch(elastic: Elastic) -> None:
    kills = {1: (5, "backward"), 2: (-1, "join")}
    ran = elastic("joining", 4, kills, "--min-np", "2").check(0, 3)
    assert ran.end(0)["size"] == 2


def test_the_job_ends_when_too_few_are_left(elastic: Elastic) -> None:
    kills = {1: (5, "backward"), 2: (9, "step")}
    ran = elastic("steps", 3, kills, "--min-np", "2")
    assert ran.job.code == 128 + 9
    assert "rank 2 was killed by SIGKILL: 1 rank is left, at least 2 are needed" in ran.job.output
    assert not ran.of(0, "end")


def test_a_sum_over_passes_begins_anew(elastic_torch: Elastic) -> None:
    kills = {1: (5, "pass 0"), 2: (10, "pass 1")}
    elastic_torch("two_passes", 4, kills, "--min-np", "2").check(0, 3)


@pytest.mark.parametrize("late", [0, 2])
def test_a_step_that_one_rank_has_applied_is_not_lost(elastic_torch: Elastic, late: int) -> None:
    ran = elastic_torch("behind", 3, {1: (7, "behind")}, "--min-np", "2", LATE=str(late)).check(
        0, 2
    )
    for rank in (0, 2):
        steps = {facts["step"]: facts["size"] for facts in ran.of(rank, "step")}
        assert steps.get(7) == (None if rank == late else 3)


def test_restore_undoes_what_a_failed_step_has_changed(elastic_torch: Elastic) -> None:
    ran = elastic_torch("commits", 3, {1: (7, "backward")}, "--min-np", "2").check(0, 2)
    for rank in (0, 2):
        assert ran.end(rank)["begun"] == STEPS
        assert all(facts["begun"] == facts["step"] + 1 for facts in ran.of(rank, "step"))


def test_groups_of_an_earlier_epoch_say_so(elastic: Elastic) -> None:
    ran = elastic("groups", 3, {1: (7, "forward")}, "--min-np", "2").check(0, 2)
    for rank in (0, 2):
        errors = ran.end(rank)["errors"]
        assert len(errors) == 2
        assert all("[0, 1, 2] is of an earlier epoch" in error for error in errors)
        assert ran.end(rank)["total"] == 2


@pytest.mark.torch22
def test_torchs_ddp_goes_on(elastic_torch: Elastic) -> None:
    ran = elastic_torch("ddp", 3, {0: (7, "backward")}, "--min-np", "2").check(1, 2)
    for number, rank in enumerate((1, 2)):
        end = ran.end(rank)
        assert (end["rank"], end["size"], end["total"]) == (number, 2, 2)
        assert [facts["size"] for facts in ran.of(rank, "reset")] == [2]


def test_torchs_ddp_goes_on_although_a_rank_is_lost_while_its_group_is_made(
    elastic_torch: Elastic,
) -> None:
    """Two ranks are lost so, and a third one between later steps."""
    kills = {1: (5, "backward"), 3: (-1, "group"), 4: (10, "between")}
    ran = elastic_torch("ddp", 5, kills, "--min-np", "2").check(0, 2)
    for number, rank in enumerate((0, 2)):
        end = ran.end(rank)
        assert (end["rank"], end["size"], end["total"]) == (number, 2, 2)
        sizes = [facts["size"] for facts in ran.of(rank, "reset")]
        assert sizes[-2:] == [3, 2]


def test_a_script_of_horovods_goes_back_to_its_last_commit(elastic_torch: Elastic) -> None:
    kills = {0: (6, "backward"), 2: (10, "backward")}  # The first one, and one in the middle.
    ran = elastic_torch("horovods", 4, kills, "--min-np", "2")
    ran.job.check()
    for number, rank in enumerate((1, 3)):
        end = ran.end(rank)
        resets = [(facts["rank"], facts["size"]) for facts in ran.of(rank, "reset")]
        assert resets == [(2 * number, 3), (number, 2)]
        assert (end["total"], end["begun"], end["set_of_two"]) == (2, STEPS, None)
        steps = [facts["step"] for facts in ran.of(rank, "step")]
        assert steps == [*range(6), *range(4, 10), *range(8, STEPS)]
        ran.check_parameters(rank)
    assert ran.end(1)["digest"] == ran.end(3)["digest"]
