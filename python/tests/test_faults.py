"""What survivors learn when a rank is killed, stopped, forks or disagrees: real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_jobs import VICTIM, Job

pytestmark = pytest.mark.faults
# What the kernel reports of a process that has ended, at once: no deadline was needed.
KERNELS_WORD = "was lost: (its process has ended|.*(closed by the peer|[Cc]onnection reset))"
# Another survivor had that word first, and has told this one.
SURVIVORS_WORD = r"rank \d gave the group up: rank \d was lost"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.end()


@pytest.fixture(params=["shm", "tcp"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_killed_rank_with_forked_children_is_named_by_every_survivor(
    job: Job, transport: str
) -> None:
    job.start("killed_with_forked_children", 3, CORRO_TRANSPORT=transport)
    job.let_victim_go()
    victim = json.loads(job.processes[VICTIM].stdout.readline())  # type: ignore[union-attr]
    survivors = {rank: job.facts(rank) for rank in (0, 2)}
    for child in victim["children"]:  # They were there all the time.
        os.kill(child, signal.SIGKILL)
    for rank, facts in survivors.items():
        assert facts["error"] == "RankLostError", facts
        assert (facts["culprit"], facts["op"]) == (VICTIM, "allreduce")
        assert facts["phase"]
        assert re.search(f"{KERNELS_WORD}|{SURVIVORS_WORD}", facts["message"]), facts
        milliseconds = (facts["at"] - victim["killed_at"]) * 1000
        print(f"rank {rank} named the killed rank after {milliseconds:.1f} ms ({transport})")
    assert any(re.search(KERNELS_WORD, facts["message"]) for facts in survivors.values())


def test_a_rank_killed_while_the_others_rest_is_named_by_their_next_calls(
    job: Job, transport: str
) -> None:
    job.start("killed_while_others_rest", 3, CORRO_TRANSPORT=transport)
    job.let_victim_go()
    assert job.processes[VICTIM].wait(100) == -signal.SIGKILL
    for rank in (0, 2):
        facts = job.facts(rank)
        assert facts["noticed"], "a resting engine has not woken up for it"
        assert (facts["error"], facts["culprit"]) == ("RankLostError", VICTIM), facts
        assert re.search(KERNELS_WORD, facts["message"]), facts


def test_a_stopped_rank_is_named_at_the_deadline(job: Job, transport: str) -> None:
    job.start("stopped", 3, CORRO_TRANSPORT=transport, CORRO_TIMEOUT="4")
    job.let_victim_go()
    for rank in (0, 2):
        facts = job.facts(rank)
        assert facts["error"] == "TimeoutError", facts
        assert facts["culprit"] == VICTIM, facts


@pytest.mark.slow
def test_ranks_that_are_starved_are_not_lost(job: Job) -> None:
    """Two hosts, as far as corro knows, share one core with eight busy processes."""
    cores = os.sched_getaffinity(0)
    busy: list[subprocess.Popen[bytes]] = []
    forever = [sys.executable, "-c", "while True: pass"]
    try:
        os.sched_setaffinity(0, {min(cores)})  # What is started from here on stays there.
        busy.extend(subprocess.Popen(forever) for _ in range(8))
        job.make_secret()
        for rank in range(2):
            job.start_rank(rank, "starved", 2, CORRO_HOST_ID=f"host-{rank}", CORRO_TIMEOUT="300")
        os.sched_setaffinity(0, cores)
        for rank in range(2):
            facts = job.facts(rank)
            assert (facts["total"], facts["ranks_lost"]) == (2.0 * (8 << 20), 0), facts
    finally:
        os.sched_setaffinity(0, cores)
        for process in busy:
            process.kill()
            process.wait()


def test_a_rank_stopped_inside_stores_nothing_into_what_the_other_has_taken_back(job: Job) -> None:
    job.start("stopped_inside_an_arena", 2, CORRO_TIMEOUT="3")
    other, victim = job.processes
    gave_up = json.loads(other.stdout.readline())  # type: ignore[union-attr]
    assert gave_up["error"] == "TimeoutError", gave_up
    victim.send_signal(signal.SIGCONT)
    assert job.facts(VICTIM)["error"] is not None, "it took what was overwritten for a result"
    assert job.facts(0, say="\n")["overwritten"] == 0


@pytest.mark.slow
def test_a_rank_that_is_late_or_stopped_is_not_lost_before_its_deadline(tmp_path: Path) -> None:
    """All at once, since each takes as long as a kernel may not wait."""
    cases = {  # Ranks, and the sum that each rank has.
        "late_to_one": (4, 4.0 * (1 << 19)),
        "late_to_many": (2, 8 * 2.0 * (1 << 20)),
        "late_to_broadcast": (3, 1.0 * (1 << 22)),
        "stopped_and_continued": (3, 1.0 * (1 << 22)),
    }
    jobs = {scenario: Job(tmp_path / scenario) for scenario in cases}
    try:
        for scenario, job in jobs.items():
            job.directory.mkdir()
            job.start(scenario, cases[scenario][0], CORRO_TRANSPORT="tcp", CORRO_TIMEOUT="600")
        jobs["stopped_and_continued"].let_victim_go()
        # The late rank says this when it has come, so the stopped one has been as late.
        jobs["late_to_one"].processes[VICTIM].stdout.readline()  # type: ignore[union-attr]
        os.kill(jobs["stopped_and_continued"].processes[VICTIM].pid, signal.SIGCONT)
        for scenario, (ranks, total) in cases.items():
            for rank in range(ranks):
                if (scenario, rank) != ("late_to_one", VICTIM):
                    assert jobs[scenario].facts(rank)["total"] == total, scenario
    finally:
        for job in jobs.values():
            job.end()


def test_a_mismatch_names_both_sides_and_the_group_goes_on(job: Job, transport: str) -> None:
    job.start("mismatch", 3, CORRO_TRANSPORT=transport)
    for rank in range(3):
        facts = job.facts(rank)
        assert facts["error"] == "MismatchError", facts
        assert "called allreduce(f64[2,3], sum)" in facts["message"], facts
        assert "rank 1 called allreduce(f64[3,2], sum)" in facts["message"], facts
        assert facts["after"] == [3.0] * 3


def test_with_closing_rounds_all_survivors_have_done_the_same_operations(
    job: Job, transport: str
) -> None:
    job.start("counted_until_killed", 4, CORRO_TRANSPORT=transport, CORRO_COMMIT="1")
    done = []
    for rank in (1, 2, 3):  # Rank 0, which decides, was killed.
        facts = job.facts(rank)
        assert (facts["error"], facts["culprit"]) == ("RankLostError", 0), facts
        done.append(facts["done"])
    assert len(set(done)) == 1, done
    assert done[0] >= 20


def test_survivors_of_a_plan_go_on_without_the_killed_rank(job: Job, transport: str) -> None:
    job.start("killed_inside_a_plan", 3, CORRO_TRANSPORT=transport)
    survivors = [job.facts(rank) for rank in (0, 2)]
    first = min(facts["before"] for facts in survivors)
    # The victim fills micro-batch 5 into the slot of 3, so it has the sum of 3, to which all gave
    # theirs; each had a slot for that sum, so it had taken 1. Nobody can have summed 5.
    assert 2 <= first <= 5
    for facts in survivors:
        assert (facts["error"], facts["culprit"]) == ("RankLostError", VICTIM), facts
        assert "rank 1" in facts["message"]
        assert "service " in facts["message"]
        assert "micro-batch " in facts["message"]
        assert facts["first"] == first
        assert facts["sums"][:first] == [30 * micro + 3 for micro in range(first)]
        assert facts["sums"][first:] == [20 * micro + 2 for micro in range(first, 10)]
        assert facts["repeated"] == list(range(first, facts["before"]))


def test_a_forked_child_cannot_use_the_engine(job: Job, transport: str) -> None:
    job.start("used_in_child", 2, CORRO_TRANSPORT=transport)
    for rank in range(2):
        assert job.facts(rank)["child"] == "FailedPreconditionError"


def test_engines_leave_no_descriptors_and_threads_behind(job: Job, transport: str) -> None:
    job.start("leaves_nothing", 2, CORRO_TRANSPORT=transport)
    for rank in range(2):
        counts = job.facts(rank)["counts"]
        assert counts[1:] == [counts[1]] * 4, counts
