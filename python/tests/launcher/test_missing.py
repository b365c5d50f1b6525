"""A rank does not come: others give up at the deadline, and the block is about the missing one."""

from __future__ import annotations

import signal
import sys

import pytest

from .conftest import Job, Launcher, is_alive, pids_in

pytestmark = pytest.mark.faults

# Rank 1 stays where `stay` says; `before` runs before corro is imported.
SCRIPT = """import os, signal, sys, time
rank = int(os.environ["CORRO_RANK"])
open(f"pid-{{os.getpid()}}", "w")
{before}
import corro
import corro.numpy as cn

def stay():
    {stay}

if {early} and rank == 1: stay()
corro.init()
cn.allreduce(1)
corro.set_step(4)
if rank == 1: stay()
cn.allreduce(2.5)
"""
DEADLINE = {"CORRO_TIMEOUT": "3"}


def script(stay: str, *, before: str = "", early: bool = False) -> str:
    return SCRIPT.format(stay=stay, before=before, early=early)


def run(launcher: Launcher, text: str) -> Job:
    """Runs three ranks; all is said of rank 1 by the two that waited for it."""
    job = launcher.run("-np", 3, launcher.script(text), env=DEADLINE)
    assert job.process.returncode == 1, job.err
    assert job.block()[0].startswith("corro: rank 1 kept others waiting on ")
    failure = job.failure()
    assert (failure["rank"], failure["exit"]) == (1, 1)
    assert failure["cause"].count("corro.TimeoutError: ") == 1
    assert failure["waited"]
    assert failure["log"].endswith("rank-1.log")
    assert failure["pid"] in pids_in(launcher.directory, 3)
    return job


def test_a_rank_that_did_not_call_is_named_with_where_it_was(launcher: Launcher) -> None:
    job = run(launcher, script("time.sleep(1000)"))
    failure = job.failure()
    path = launcher.directory / "script.py"
    assert failure["where"] == f"{path}:9 in stay: time.sleep(1000)"
    assert (failure["step"], failure["op"]) == (4, "allreduce")
    text = "\n".join(job.block())
    assert "last operation was allreduce #1" in text
    assert "ranks 0,2 gave up at" in text
    assert f"{path}:16 in <module>: cn.allreduce(2.5)" in text
    assert not any(is_alive(pid) for pid in pids_in(launcher.directory, 3))


def test_a_busy_rank_is_asked_too_and_ends_by_term(launcher: Launcher) -> None:
    before = "signal.signal(signal.SIGTERM, lambda *_: (open('term', 'w'), os._exit(3)))"
    job = run(launcher, script("while True: pass", before=before))
    assert "in stay: while True: pass" in job.failure()["where"]
    assert (launcher.directory / "term").exists(), "it may still save what it has"


def test_a_rank_that_never_joins_is_named(launcher: Launcher) -> None:
    job = run(launcher, script("time.sleep(1000)", early=True))
    assert ":9 in stay: time.sleep(1000)" in job.failure()["where"]
    assert job.failure()["step"] is None


def test_a_rank_that_ends_before_it_joins_is_not_waited_for(launcher: Launcher) -> None:
    text = script("sys.exit(0)", early=True)
    job = launcher.run("-np", 3, launcher.script(text), env={"CORRO_TIMEOUT": "100"})
    assert job.process.returncode == 1, job.err
    failure = job.failure()
    assert failure["rank"] in (0, 2)
    assert failure["cause"] == (
        "corro.RankLostError: connect: rank 1 ended before it had joined the job"
    )
    assert failure["advice"].startswith("rank 1 had left without an error")


def test_a_process_that_a_rank_leaves_behind_may_join_for_it(launcher: Launcher) -> None:
    leave = "first = os.getpid()\n    if os.fork(): os._exit(0)\n"
    until_the_launcher_knows = '    while os.path.exists(f"/proc/{first}"): time.sleep(0.01)'
    text = script(leave + until_the_launcher_knows, early=True)
    text = text.replace("corro.set_step(4)\nif rank == 1: stay()\n", "")
    job = launcher.run("-np", 2, launcher.script(text), env={"CORRO_TIMEOUT": "20"})
    assert job.process.returncode == 0, job.err


def test_a_stopped_rank_is_said_to_be(launcher: Launcher) -> None:
    job = run(launcher, script("os.kill(os.getpid(), signal.SIGSTOP)"))
    failure = job.failure()
    assert failure["cause"].startswith("stopped by a signal; corro.TimeoutError: ")
    assert f"kill -CONT {failure['pid']}" in failure["advice"]
    assert failure["step"] == 4


@pytest.mark.parametrize(
    ("stay", "before"),
    [
        ("os.execlp('sleep', 'sleep', '1000')", ""),
        ("time.sleep(1000)", "signal.signal(signal.SIGRTMAX - 3, lambda *_: open('used', 'w'))"),
        ("signal.signal(signal.SIGRTMAX - 3, signal.SIG_DFL); time.sleep(1000)", ""),
    ],
    ids=["another program", "the signal is the user's", "the handler was taken away"],
)
def test_what_cannot_answer_is_not_asked(launcher: Launcher, stay: str, before: str) -> None:
    job = run(launcher, script(stay, before=before, early=True))
    assert job.failure()["where"] is None
    assert "see what rank 1 did" in job.failure()["advice"]
    assert not (launcher.directory / "used").exists()


def test_a_rank_behind_a_shell_is_asked(launcher: Launcher) -> None:
    path = launcher.script(script("time.sleep(1000)"))
    job = launcher.run(
        "-np", 3, "sh", "-c", '"$@"; exit $?', "sh", sys.executable, path, env=DEADLINE
    )
    assert ":9 in stay: time.sleep(1000)" in job.failure()["where"]


def test_a_rank_killed_while_it_is_waited_for_is_lost_not_late(launcher: Launcher) -> None:
    text = script("time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)")
    job = launcher.run("-np", 3, launcher.script(text), env=DEADLINE)
    assert job.process.returncode == 128 + signal.SIGKILL
    assert job.block()[0].startswith("corro: rank 1 failed on ")
