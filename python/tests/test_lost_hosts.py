"""A host whose cable is cut is known to all survivors within seconds, in operations and at rest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import netns
import pytest
from lost_hosts import Job

pytestmark = pytest.mark.faults
BOUND = 15.0  # Seconds: three times the promise of 5 s; the deadline of operations is 100 s.


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    if refusal := netns.refusal():
        pytest.skip(refusal)
    made = Job(tmp_path, *request.param)
    yield made
    made.end()


def shapes(*values: tuple[int, int]) -> pytest.MarkDecorator:
    names = [f"{hosts}x{ranks}" for hosts, ranks in values]
    return pytest.mark.parametrize("job", values, indirect=True, ids=names)


def check_in_time(seconds: float, job: Job, how: str) -> None:
    survivors = len(job.ranks) - job.ranks_a_host
    print(f"{survivors} survivors knew of the lost host after {seconds:.2f} s ({how})")
    assert seconds < BOUND


@shapes((2, 1), (3, 2))
def test_a_vanished_host_ends_operations_in_flight(job: Job) -> None:
    last = len(job.hosts.names) - 1
    check_in_time(job.lose_host("in_operations", last), job, "in operations")


@shapes((3, 2))
def test_a_vanished_host_ends_operations_that_only_wait(job: Job) -> None:
    job.start("waiting")
    for rank in range(6):
        job.say(rank, "wait" if rank in job.on(1) else "go")
    cut_at = time.monotonic()
    job.hosts.cut(1)
    check_in_time(job.seconds_until_known(1, cut_at), job, "waiting")


@shapes((2, 2), (3, 2), (4, 1))
def test_a_vanished_host_is_known_to_engines_at_rest_which_have_no_timer(job: Job) -> None:
    check_in_time(job.lose_host("at_rest", 1), job, "at rest")


@shapes((3, 3))
def test_a_vanished_host_is_known_after_the_ends_of_those_that_watched(job: Job) -> None:
    job.start("after_their_owners_end")
    owners = [0, 3, 6]
    for rank in range(9):
        job.say(rank, "die" if rank in owners else "live")
    for rank in owners:
        job.ranks[rank].wait(100)
    cut_at = time.monotonic()
    job.hosts.cut(1)
    survivors = [1, 2, 7, 8]
    for rank in survivors:  # Its own host's owner and three of the lost host, at rest.
        job.say(rank, "4")
    slowest = max(job.facts(rank)["at"] for rank in survivors) - cut_at
    print(f"{len(survivors)} survivors knew of the lost host after {slowest:.2f} s")
    assert slowest < BOUND
