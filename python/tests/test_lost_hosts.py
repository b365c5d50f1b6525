"""A host whose cable is cut is known to all survivors within seconds, in operations and at rest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import netns
import pytest
from lost_hosts import Job

pytestmark = [pytest.mark.faults, pytest.mark.beside]

PORT = 2000
LISTENS = f"""
import socket
server = socket.create_server(("", {PORT}))
print("listens", flush=True)
server.accept()[0].recv(1)
"""
# The kernel probes this connection once a second, and gives it up when 15 s long nothing answered:
# three times what engines may take, which count its probes as well. Operations have 100 s.
OUTLASTS = f"""
import socket, sys, time
link = socket.create_connection((sys.argv[1], {PORT}))
link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
for option, value in ("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 14):
    link.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
print("connected", flush=True)
try:
    link.recv(1)
except TimeoutError:
    print(time.monotonic(), flush=True)
"""


class Link:
    """A connection from one host to another, which nobody uses and the kernel probes."""

    def __init__(self, hosts: netns.Hosts, near: int, far: int) -> None:
        self._ends: list[subprocess.Popen[str]] = []
        self._start("listens", *hosts.inside(far), sys.executable, "-c", LISTENS)
        address = hosts.address(far)
        self._start("connected", *hosts.inside(near), sys.executable, "-c", OUTLASTS, address)

    def _start(self, says: str, *command: str) -> None:
        end = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._ends.append(end)
        assert end.stdout is not None
        assert end.stdout.readline() == f"{says}\n"

    def given_up_at(self) -> float | None:
        """When the kernel gave it up, if it has."""
        near = self._ends[1]
        if near.poll() is None:
            return None
        assert near.stdout is not None
        said = near.stdout.read()
        assert said, "the link broke, though nobody answered"
        return float(said)

    def end(self) -> None:
        for end in self._ends:
            end.kill()
            end.wait()
            assert end.stdout is not None
            end.stdout.close()


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


@contextmanager
def link_outlasts(job: Job, lost: int, how: str) -> Iterator[list[float]]:
    """Whoever uses it adds how long after the cut the last survivor knew: while the kernel still
    probed the link to the lost host."""
    link = Link(job.hosts, 0, lost)
    slowest: list[float] = []
    try:
        yield slowest
        [seconds] = slowest
        print(f"the survivors knew of the lost host after {seconds:.2f} s ({how})")
        given_up_at = link.given_up_at()
        assert given_up_at is None or job.cut_at + seconds < given_up_at
    finally:
        link.end()


@shapes((2, 1), (3, 2))
def test_a_vanished_host_ends_operations_in_flight(job: Job) -> None:
    last = len(job.hosts.names) - 1
    with link_outlasts(job, last, "in operations") as slowest:
        slowest.append(job.lose_host("in_operations", last))


@shapes((3, 2))
def test_a_vanished_host_ends_operations_that_only_wait(job: Job) -> None:
    with link_outlasts(job, 1, "waiting") as slowest:
        job.start("waiting")
        for rank in range(6):
            job.say(rank, "wait" if rank in job.on(1) else "go")
        job.cut(1)
        slowest.append(job.seconds_until_known(1))


@shapes((2, 2), (3, 2), (4, 1))
def test_a_vanished_host_is_known_to_engines_at_rest_which_have_no_timer(job: Job) -> None:
    with link_outlasts(job, 1, "at rest") as slowest:
        slowest.append(job.lose_host("at_rest", 1))


@shapes((3, 3))
def test_a_vanished_host_is_known_after_the_ends_of_those_that_watched(job: Job) -> None:
    with link_outlasts(job, 1, "after the ends of those that watched") as slowest:
        job.start("after_their_owners_end")
        owners = [0, 3, 6]
        for rank in range(9):
            job.say(rank, "die" if rank in owners else "live")
        for rank in owners:
            job.ranks[rank].wait(100)
        job.cut(1)
        survivors = [1, 2, 7, 8]
        for rank in survivors:  # Its own host's owner and three of the lost host, at rest.
            job.say(rank, "4")
        slowest.append(max(job.facts(rank)["at"] for rank in survivors) - job.cut_at)
