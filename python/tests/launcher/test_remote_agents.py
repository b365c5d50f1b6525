"""Agents behind a remote shell, which here leads back to this host: input, Ctrl-Z, lost agents."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import Launcher, is_alive, pids_in, wait_until

pytestmark = pytest.mark.faults

STAYS = """
import os, time
with open("rank-" + os.environ["RANK"], "w") as file: file.write(str(os.getpid()))
open(f"pid-{os.getpid()}", "w")
while True: time.sleep(0.1)
"""
READS_LATE = """
import hashlib, os, sys, time
while not os.path.exists("read"): time.sleep(0.01)
text = sys.stdin.buffer.read()
print(len(text), hashlib.sha1(text).hexdigest())
"""


def shell(launcher: Launcher, before: str = "") -> str:
    """For --rsh: every host is this one. `before` is what it does first."""
    path = launcher.directory / "rsh"
    path.write_text(f'#!/bin/sh\n{before}\nexec sh -c "$2"\n')
    path.chmod(0o755)
    return str(path)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_who_feeds_a_rank_that_does_not_read_waits(launcher: Launcher) -> None:
    rsh = shell(launcher)
    job = launcher.start(
        "-H", "node1", "--rsh", rsh, launcher.script(READS_LATE), stdin=subprocess.PIPE
    )
    assert job.process.stdin is not None
    pipe = job.process.stdin.fileno()
    text = os.urandom(64 << 20)
    written = 0
    os.set_blocking(pipe, False)

    def is_full() -> bool:
        """Nothing more is taken: neither now nor some looks of the launcher later."""
        nonlocal written
        before = written
        for _ in range(200):
            try:
                written += os.write(pipe, text[written : written + 65536])
            except BlockingIOError:
                time.sleep(0.01)
        return written == before

    wait_until(lambda: is_full() and written > 1 << 20, "whoever writes has to wait")
    assert written < 4 << 20, "nothing is piled up in memory"
    (launcher.directory / "read").touch()
    os.set_blocking(pipe, True)
    job.out, job.err = job.process.communicate(text[written:])
    assert job.lines() == [f"{len(text)} {hashlib.sha1(text).hexdigest()}"]


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_before_ranks_run_is_said_and_is_the_status(launcher: Launcher, times: int) -> None:
    rsh = shell(launcher, "touch asked; sleep 1000")
    job = launcher.start("-H", "node1", "--rsh", rsh, "echo")
    wait_until((launcher.directory / "asked").exists, "the host is asked")
    for _ in range(times):
        job.send(signal.SIGINT)
    assert job.wait() == 128 + signal.SIGINT
    assert job.err == b"corro run: stopped before a rank was started\n"


def test_ctrl_z_may_last_longer_than_other_hosts_wait_for_a_word(launcher: Launcher) -> None:
    """The agents' clocks are in other processes: only time shows that they do not end."""
    hosts = ("--fan-out", 1, "-H", "node1,node2", "--rsh", shell(launcher))
    job = launcher.start(*hosts, launcher.script(STAYS))
    pids = pids_in(launcher.directory, 2)
    job.send(signal.SIGTSTP)
    wait_until(lambda: all(state_of(pid) == "T" for pid in [*pids, job.process.pid]), "a stop")
    time.sleep(12)
    job.send(signal.SIGCONT)
    wait_until(lambda: all(state_of(pid) in "SR" for pid in pids), "the ranks go on")
    time.sleep(1.5)  # One look of the launcher.
    assert all(map(is_alive, pids))
    job.send(signal.SIGTERM)
    assert job.wait() == 128 + signal.SIGTERM, job.err


@pytest.mark.parametrize("number", [1, 2])
def test_a_banner_is_not_why_a_host_was_lost(launcher: Launcher, number: int) -> None:
    rsh = shell(launcher, "echo 'Warning: this system is not found wanting' >&2")
    hosts = ("--fan-out", 1, "-H", "node1,node2", "--rsh", rsh)
    job = launcher.start(*hosts, launcher.script(STAYS))
    pids_in(launcher.directory, 2)
    rank = int((launcher.directory / f"rank-{number - 1}").read_text())
    agent = int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(agent, signal.SIGKILL)
    assert job.wait() == 128 + signal.SIGKILL
    block = "\n".join(job.block())
    assert f"host node{number} was lost: its agent has ended without a word" in block
    assert "network" in block
    assert "out-of-memory" not in block


def test_a_rank_that_ended_before_it_joined_is_named_with_its_host(launcher: Launcher) -> None:
    """Only the list of the epoch's members tells the agent of one host who is on another one."""
    text = "import os\nif os.environ['RANK'] == '1': os._exit(0)\nimport corro\ncorro.init()\n"
    hosts = ("--fan-out", 1, "-H", "node1,node2", "--rsh", shell(launcher))
    job = launcher.run(*hosts, launcher.script(text), env={"CORRO_TIMEOUT": "100"})
    assert job.process.returncode == 1, job.err
    failure = job.failure()
    assert (failure["rank"], failure["host"]) == (0, "node1")
    assert failure["cause"] == (
        "corro.RankLostError: connect: rank 1 on node2 ended before it had joined the job"
    )
    assert failure["advice"].startswith("rank 1 had left without an error")
