"""Tables whose servers are the ranks: `corro run --servers ranks`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import HERE, Finished, Launch

WORKER = str(HERE / "table_worker.py")


def run(launch: Launch, case: str, ranks: int = 2, **env: str) -> Finished:
    return launch(WORKER, case, ranks=ranks, options=("--servers", "ranks"), **env)


@pytest.mark.parametrize("replicas", [0, 1])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_steps_give_the_bits_of_one_process(launch: Launch, ranks: int, replicas: int) -> None:
    output = run(launch, "exact", ranks, REPLICAS=str(replicas)).check().output
    assert output.count(f"exact with {ranks} ranks") == ranks
    assert "server" not in output


@pytest.mark.parametrize("case", ["ahead", "bounded"])
def test_modes_are_those_of_servers_by_themselves(launch: Launch, case: str) -> None:
    assert run(launch, case).check().output.count(f"{case} with 2 ranks") == 2


def test_a_rank_that_is_through_keeps_its_rows_for_others(launch: Launch, tmp_path: Path) -> None:
    assert "rank 0 pulls" in run(launch, "ends_early", FOLDER=str(tmp_path)).check().output


def test_nobody_waits_for_a_rank_that_has_ended_in_its_own_way(launch: Launch) -> None:
    assert "rank 0 is through" in run(launch, "ends_without_a_word").check().output


def test_a_rank_that_fails_ends_the_job_at_once(launch: Launch) -> None:
    job = run(launch, "fails")
    assert job.code == 1
    assert "ValueError: a fault of the user's" in job.output


def test_nobody_waits_for_the_push_of_a_rank_that_has_ended(launch: Launch) -> None:
    job = run(launch, "exits", CORRO_TIMEOUT="800")
    assert job.code != 0
    assert "table t: push 2: rank 1 has ended, and pushes no more" in job.output


def test_a_rank_that_is_killed_ends_the_job(launch: Launch) -> None:
    job = run(launch, "killed")
    assert job.code != 0
    assert re.search(r"corro: rank 1 failed .*\n +what +killed by SIGKILL", job.output)


def test_a_rank_that_makes_no_table_is_named(launch: Launch) -> None:
    output = run(launch, "makes_none", CORRO_TIMEOUT="4").check().output
    assert "none: rank 1 has made no table" in output
    assert output.count("has its table") == 2


def test_who_waits_for_a_rank_that_is_through_in_a_collective_is_told(launch: Launch) -> None:
    job = run(launch, "leaves_a_collective", CORRO_TIMEOUT="800")
    assert job.code != 0
    assert "told: barrier" in job.output


def test_a_forked_child_leaves_the_server_to_its_parent(launch: Launch) -> None:
    assert "forked: corro.table: this process was forked" in run(launch, "forked", 1).check().output
    output = run(launch, "child_ends").check().output
    assert output.count("has its table") == 2


def test_elastic_jobs_refuse(launch: Launch) -> None:
    job = launch(WORKER, "exact", ranks=2, options=("--servers", "ranks", "--min-np", "1"))
    assert job.code == 2
    assert "--servers: elastic jobs have no table servers" in job.output
