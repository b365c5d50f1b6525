"""Ranks join elastic jobs, and hosts are discovered: real processes."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
from conftest import Launch
from elastic_jobs import STEPS, Elastic, Ran
from numpy_training import network_after_quarters

pytestmark = [pytest.mark.faults, pytest.mark.beside]


def check_joined(ran: Ran, first: int, *survivors: int) -> None:
    """One rank has joined after so many steps, and all have done each step once."""
    ran.check(*survivors)
    (joiner,) = ran.joiners
    steps = [facts["step"] for facts in joiner if "step" in facts]
    assert steps == list(range(first, STEPS))
    (end,) = (facts for facts in joiner if "end" in facts)
    assert end["digest"] == ran.end(survivors[0])["digest"], "replicas differ"
    for rank in survivors:
        done = [facts["step"] for facts in ran.of(rank, "step")]
        assert done == list(range(STEPS)), "a step was lost or repeated"
        sizes = {facts["step"]: facts["size"] for facts in ran.of(rank, "step")}
        assert all(sizes[step] == sizes[first] for step in range(first, STEPS))
        assert sizes[first] == sizes[first - 1] + 1


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("scenario", ["steps", "commits", "asks"])
def test_a_rank_joins_at_the_end_of_a_step(elastic: Elastic, scenario: str, ranks: int) -> None:
    ran = elastic(scenario, ranks, {}, "--max-np", str(ranks + 1), GATE="5")
    check_joined(ran, 6, *range(ranks))
    assert f"{ranks + 1} ranks go on, 1 of them new" in ran.job.output


def test_a_rank_joins_at_the_end_of_a_step_of_torchs(elastic_torch: Elastic) -> None:
    check_joined(elastic_torch("steps", 2, {}, "--max-np", "3", GATE="5"), 6, 0, 1)


def test_a_killed_rank_is_replaced(elastic: Elastic) -> None:
    options = ("--min-np", "2", "--max-np", "3")
    ran = elastic("steps", 3, {1: (3, "backward")}, *options, GATE="9")
    check_joined(ran, 10, 0, 2)
    (joiner,) = ran.joiners
    assert {facts["rank"] for facts in joiner if "step" in facts} == {2}, "it comes last"


def test_the_others_wait_where_too_few_are_left(elastic: Elastic) -> None:
    ran = elastic("steps", 2, {1: (7, "backward")}, "--max-np", "2").check(0)
    assert {facts["size"] for facts in ran.of(0, "step")} == {2}
    (joiner,) = ran.joiners
    assert [facts["step"] for facts in joiner if "step" in facts] == list(range(7, STEPS))


@pytest.mark.parametrize("victim", [0, 1])
def test_a_service_that_is_killed_between_steps_and_started_again_changes_nothing(
    elastic: Elastic, victim: int
) -> None:
    other = 1 - victim
    ran = elastic("services", 2, {victim: (7, "between")}, "--max-np", "2").check(other)
    (joiner,) = ran.joiners
    assert [facts["step"] for facts in joiner if "step" in facts] == list(range(8, STEPS))
    (end,) = (facts for facts in joiner if "end" in facts)
    assert end["digest"] == ran.end(other)["digest"], "replicas differ"
    alone = network_after_quarters(STEPS).flat().tobytes()
    assert end["digest"] == hashlib.sha256(alone).hexdigest()


def test_the_others_wait_for_a_replacement_and_a_policy_is_asked(
    elastic: Elastic, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.py"
    policy.write_text(
        "from corro.elastic import serve_policy\n"
        "serve_policy(failure=lambda slot: (0, f'{slot.failures} failure there'))\n"
    )
    command = f"{sys.executable} {policy}"
    options = ("--min-np", "1", "--max-np", "2", "--replace-wait", "1m", "--policy", command)
    ran = elastic("steps", 2, {1: (7, "backward")}, *options).check(0)
    assert {facts["size"] for facts in ran.of(0, "step")} == {2}
    assert ": 1 failure there" in ran.job.output


def test_a_policy_that_is_not_there_is_said_once(elastic: Elastic) -> None:
    options = ("--min-np", "1", "--policy", "/no/such/policy")
    ran = elastic("steps", 2, {1: (7, "backward")}, *options).check(0)
    assert ran.job.output.count("--policy /no/such/policy: it ended with status 127: ") == 1
    assert ran.job.output.count("it is asked no more") == 1


def test_a_rank_joins_a_job_that_saves_checkpoints(elastic_torch: Elastic) -> None:
    ran = elastic_torch("saves", 2, {}, "--max-np", "3", GATE="5")
    check_joined(ran, 6, 0, 1)
    assert ran.end(0)["saved"] == STEPS


def test_ranks_join_together(elastic: Elastic) -> None:
    ran = elastic("steps", 1, {}, "--max-np", "3", GATE="5", COMING="2").check(0)
    assert len(ran.joiners) == 2
    sizes = {facts["step"]: facts["size"] for facts in ran.of(0, "step")}
    assert sizes[5] == 1
    assert sizes[STEPS - 1] == 3 or ran.end(0)["epoch"] == 1, "the other one came too late"


def test_one_that_fails_before_it_joins_is_started_again(elastic: Elastic) -> None:
    ran = elastic("fails_once", 2, {}, "--max-np", "3", GATE="5")
    assert "rank 2 ended with status 3 before it had joined" in ran.job.output
    ran.joiners.remove(next(facts for facts in ran.joiners if len(facts) == 1))
    check_joined(ran, 6, 0, 1)


TOO_LATE = """
import os, pathlib, time
there = pathlib.Path("joiner")
if os.environ["RANK"] == "2":
    there.touch()
    time.sleep(1000)
while not there.exists():
    time.sleep(0.01)
"""


def test_one_that_comes_too_late_is_no_loss(launch: Launch) -> None:
    options = ("--min-np", "1", "--max-np", "3")
    job = launch("-c", TOO_LATE, options=options).check()
    assert job.output == ""


def test_one_that_communicates_before_it_trains_harms_nobody(elastic: Elastic) -> None:
    ran = elastic("talks", 2, {}, "--max-np", "3").check(0, 1)
    assert "communicate inside of the function that corro.elastic.run calls" in ran.job.output
    assert all(ran.end(rank)["epoch"] == 0 for rank in range(2))


def test_ranks_join_a_script_of_horovods_at_a_commit(elastic_torch: Elastic) -> None:
    check_joined(elastic_torch("horovods_grow", 2, {}, "--max-np", "3", GATE="5"), 8, 0, 1)


def test_ranks_join_a_group_of_torchs(elastic_torch: Elastic) -> None:
    options = ("--min-np", "2", "--max-np", "3")
    ran = elastic_torch("ddp_anew", 3, {0: (3, "backward")}, *options, GATE="9")
    check_joined(ran, 10, 1, 2)
    assert ran.end(1)["size"] == 3


def test_one_that_asks_for_torchs_store_before_it_joins_harms_nobody(
    elastic_torch: Elastic,
) -> None:
    ran = elastic_torch("ddp_early", 2, {}, "--max-np", "3").check(0, 1)
    assert "environment variable MASTER_ADDR expected, but not set" in ran.job.output


# -- hosts that are discovered --------------------------------------------------------------------


def discovering(tmp_path: Path, before: str, after: str) -> tuple[str, str]:
    """Options for hosts that change once ranks have come to their gate."""
    command = f"if test -e {tmp_path}/gate; then {after}; else {before}; fi"
    return "--host-discovery", command


def test_a_slot_that_is_discovered_gets_a_rank(elastic: Elastic, tmp_path: Path) -> None:
    options = discovering(tmp_path, "echo localhost:2", "echo localhost:3")
    check_joined(elastic("steps", 2, {}, *options, "--max-np", "3", GATE="5"), 6, 0, 1)


def test_a_rank_leaves_a_slot_that_is_taken_away(elastic: Elastic, tmp_path: Path) -> None:
    options = discovering(tmp_path, "echo localhost:3", "echo localhost:2")
    ran = elastic("steps", 3, {}, *options, "--min-np", "1", GATE="5").check(0, 1)
    for rank in (0, 1):
        steps = {facts["step"]: facts["size"] for facts in ran.of(rank, "step")}
        assert list(steps) == list(range(STEPS))
        assert (steps[5], steps[6]) == (3, 2)
    assert not ran.of(2, "end")
    assert "1 rank has to leave" in ran.job.output


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo no such region >&2; exit 4", "it ended with status 4: no such region"),
        ("echo {}", "not a host"),
        ("true", "has no host"),
    ],
)
def test_a_discovery_that_fails_harms_nobody(
    elastic: Elastic, tmp_path: Path, command: str, text: str
) -> None:
    options = discovering(tmp_path, "echo localhost:2", f"echo >> {tmp_path}/asked; {command}")
    ran = elastic("asked", 2, {}, *options, "--min-np", "1").check(0, 1)
    assert ran.end(0)["epoch"] == 0
    assert ran.job.output.count(text) == 1


# -- jobs without a change ------------------------------------------------------------------------


@pytest.mark.parametrize("options", [("--min-np", "2"), ()])
def test_an_undisturbed_job_stays_in_its_first_epoch(
    elastic: Elastic, options: tuple[str, ...]
) -> None:
    ran = elastic("steps", 3, {}, *options).check(0, 1, 2)
    assert all(ran.end(rank)["epoch"] == 0 and not ran.of(rank, "reset") for rank in range(3))


def test_a_mistake_of_the_users_is_raised(elastic: Elastic) -> None:
    ran = elastic("wrong", 2, {}, "--min-np", "1")
    ran.job.check()
    for rank in (0, 1):
        (facts,) = ran.of(rank, "error")
        assert "allreduce" in facts["error"]
        assert (facts["epoch"], facts["notes"]) == (0, [])


def test_a_job_that_is_not_elastic_ends_as_others_do(elastic: Elastic) -> None:
    ran = elastic("steps", 3, {1: (7, "backward")})
    assert ran.job.code == 128 + 9
    assert "rank 1 failed" in ran.job.output


def test_a_job_whose_state_is_lost_stops_and_does_not_begin_anew(elastic: Elastic) -> None:
    """The rank that has it is killed before the one that has joined has got it."""
    ran = elastic("steps", 1, {0: (-1, "reset")}, "--min-np", "1", "--max-np", "2", GATE="5")
    assert ran.job.code == 1
    assert "nobody is left who has the state after 6 steps" in ran.job.output
    assert not any("step" in facts for joiner in ran.joiners for facts in joiner)
