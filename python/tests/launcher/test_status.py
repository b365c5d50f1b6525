"""`corro status` and `corro top`: what a running job does, on another terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from .conftest import DEADLINE, Job, Launcher, wait_until

# Both ranks go on until the file `end` is there; rank 1 rests as long as `rest` is.
STEPS = """
import os, time
import corro
import corro.numpy

corro.init()
step = 0
going = True
while going:
    step += 1
    corro.set_step(step)
    while corro.rank() == 1 and os.path.exists("rest"):
        time.sleep(0.01)
    going = corro.numpy.allreduce(float(not os.path.exists("end")), corro.Min) > 0
    time.sleep(0.02)
"""

# With a terminal of its own, and signals as a shell leaves them.
ON_ITS_OWN = ["setsid", "--ctty", "env", "--default-signal=INT,QUIT"]
ENTER = b"\x1b[?1049h"
LEAVE = b"\x1b[?1049l"


def look(launcher: Launcher, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [launcher.program, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def facts(launcher: Launcher, job: Job) -> dict[str, Any]:
    seen = look(launcher, "status", job.process.pid, "--json")
    assert seen.returncode == 0, seen.stderr
    told: dict[str, Any] = json.loads(seen.stdout)
    return told


@pytest.fixture
def job(launcher: Launcher) -> Iterator[Job]:
    started = launcher.start("-np", 2, launcher.script(STEPS))
    wait_until(lambda: look(launcher, "status", started.process.pid).returncode == 0, "it answers")
    wait_until(lambda: len(facts(launcher, started)["steps"]) > 0, "it makes steps")
    yield started
    (launcher.directory / "end").touch()
    (launcher.directory / "rest").unlink(missing_ok=True)
    assert started.wait() == 0, started.err


def resize(terminal: int, lines: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@dataclass
class Terminal:
    """`corro top` on a terminal of its own."""

    process: subprocess.Popen[bytes]
    ours: int
    theirs: int
    before: list[Any]
    seen: bytes = b""

    def read(self) -> None:
        while select.select([self.ours], [], [], 0)[0]:
            self.seen += os.read(self.ours, 1 << 16)

    def shows(self, text: str, *, after: int = 0) -> None:
        def has_come() -> bool:
            self.read()
            return text.encode() in self.seen[after:]

        wait_until(has_come, f"{text!r} on the terminal")

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def leaves(self) -> int:
        """The exit status; the terminal has to be as it was."""

        def has_ended() -> bool:
            self.read()
            return self.process.poll() is not None

        wait_until(has_ended, "corro top ends")
        self.read()
        assert self.seen.count(ENTER) == self.seen.count(LEAVE) == 1
        assert termios.tcgetattr(self.theirs) == self.before
        return self.process.returncode


@pytest.fixture
def top(launcher: Launcher, job: Job) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    pid = str(job.process.pid)
    resize(theirs, 30, 120)
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [*ON_ITS_OWN, launcher.program, "top", pid],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    yield Terminal(process, ours, theirs, before)
    if process.poll() is None:
        process.kill()
        process.wait()
    os.close(ours)
    os.close(theirs)


def test_status_says_as_json_what_the_dashboard_says(job: Job, launcher: Launcher) -> None:
    told = facts(launcher, job)
    assert told["state"] == "running"
    assert told["summary"].startswith("2 ranks run; step")
    assert [rank["place"] for rank in told["ranks"]] == [0, 1]
    assert {rank["state"] for rank in told["ranks"]} == {"running"}
    assert all(rank["pid"] > 0 and rank["step"] > 0 for rank in told["ranks"])
    assert [event["kind"] for event in told["events"]].count("started") == 2
    assert told["started"] <= told["now"] <= time.time()
    assert set(told) == {
        "summary", "state", "job", "command", "epoch", "started", "now", "ranks", "events", "steps",
        "progress", "metrics", "plan", "links", "tables",
    }  # fmt: skip


def test_status_names_the_rank_that_sleeps(job: Job, launcher: Launcher) -> None:
    wait_until(
        lambda: facts(launcher, job)["ranks"][0]["step_seconds"] is not None, "a step has ended"
    )
    (launcher.directory / "rest").touch()

    def seen() -> list[str]:
        return look(launcher, "status", job.process.pid).stdout.splitlines()

    wait_until(lambda: seen()[0].startswith("rank 0 waits for rank 1 in allreduce #"), "it waits")
    lines = seen()
    assert lines[1].startswith("waiting   step ")
    assert "running for" in lines[1]
    titles = lines.index("") + 1
    assert lines[titles].split() == [
        "rank",
        "state",
        "step",
        "takes",
        "waits",
        "doing",
        "waits",
        "for",
        "host",
        "pid",
        "why",
    ]
    assert lines[titles + 1].startswith("0     ● running  ")
    assert "rank 1" in lines[titles + 1]
    assert lines[titles + 2].startswith("1     ● running, awaited  ")
    assert any(" ago  waiting  rank 1" in line for line in lines[titles + 3 :])
    assert not any("\x1b" in line for line in lines), "no colour in a pipe"


def test_a_job_that_is_not_there_is_one_line(launcher: Launcher) -> None:
    seen = look(launcher, "status", "nonsense")
    assert seen.returncode == 1
    assert seen.stdout == ""
    assert seen.stderr.startswith("corro status: no job ")


def test_several_jobs_are_listed_with_their_sentences(job: Job, launcher: Launcher) -> None:
    script = launcher.script("while [ ! -e end ]; do sleep 0.05; done", "run.sh")
    other = launcher.start("-np", 1, "sh", script)
    wanted = {job.process.pid: "2 ranks run; step", other.process.pid: "1 rank runs; no step yet"}

    def listed() -> bool:
        seen = look(launcher, "status")
        starts = [f"  corro status {pid}   {sentence}" for pid, sentence in wanted.items()]
        return seen.returncode == 0 and all(start in seen.stdout for start in starts)

    wait_until(listed, "both are listed")
    unclear = look(launcher, "status", "--json")
    assert unclear.returncode == 1
    assert unclear.stdout == ""
    assert "say which one:" in unclear.stderr
    (launcher.directory / "end").touch()
    assert other.wait() == 0, other.err


def test_top_without_a_terminal_names_status(job: Job, launcher: Launcher) -> None:
    seen = look(launcher, "top", job.process.pid)
    assert seen.returncode == 2
    assert seen.stderr == "corro top: this is no terminal; corro status prints the same once\n"


def test_top_shows_the_job_again_and_again(top: Terminal, launcher: Launcher) -> None:
    top.shows("2 ranks run; step")
    top.shows("q quits")
    (launcher.directory / "rest").touch()
    top.shows("rank 0 waits for rank 1 in allreduce #", after=len(top.seen))
    top.shows("● running, awaited", after=len(top.seen))
    resize(top.theirs, 30, 40)
    top.shows("…", after=len(top.seen))
    top.type(b"\x1b[B\x1b[5~q")
    assert top.leaves() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_top_gives_the_terminal_back_when_a_signal_ends_it(
    top: Terminal, number: signal.Signals
) -> None:
    top.shows("2 ranks run; step")
    top.type(b"\x03") if number == signal.SIGINT else top.process.send_signal(number)
    assert top.leaves() == 128 + number


def test_top_ends_with_the_job_and_leaves_its_last_screen(
    top: Terminal, job: Job, launcher: Launcher
) -> None:
    top.shows("2 ranks run; step")
    (launcher.directory / "end").touch()
    assert top.leaves() == 0
    left = top.seen.rpartition(LEAVE)[2].decode()
    assert "the job is over: every rank has done its work" in left
    assert left.count("✓ done") == 2
    assert "q quits" not in left
    assert job.wait() == 0
