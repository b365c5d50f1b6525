"""What the launcher says of a job while it runs: --events, and who waits for whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Launcher, wait_until

pytestmark = pytest.mark.faults

KEYS = ["time", "event", "epoch", "host", "rank", "place", "step", "cause"]


def events_in(file: Path) -> list[dict[str, Any]]:
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def ranks_of(events: list[dict[str, Any]], kind: str) -> list[int]:
    return [event["rank"] for event in events if event["event"] == kind]


FAILS = """
import corro
import corro.numpy
corro.init()
corro.set_step(7)
corro.numpy.allreduce(1.0)
if corro.rank() == 1:
    raise ValueError("bad data")
corro.numpy.allreduce(1.0)
"""


def test_a_failed_job_is_told_from_its_start_to_who_is_to_blame(launcher: Launcher) -> None:
    file = launcher.directory / "events.jsonl"
    job = launcher.run("-np", 2, "--events", file, launcher.script(FAILS))
    assert job.process.returncode == 1
    events = events_in(file)
    assert all(list(event) == KEYS and event["epoch"] == 0 for event in events)
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert ranks_of(events, "started") == [0, 1]
    assert sorted(ranks_of(events, "joined")) == [0, 1]
    assert sorted(ranks_of(events, "ended")) == [0, 1]
    failure = events[-1]
    assert failure["event"] == "failure"
    assert (failure["rank"], failure["step"]) == (1, 7)
    assert failure["cause"] == "ValueError: bad data" == job.failure()["cause"]


def test_ends_have_their_cause(launcher: Launcher) -> None:
    file = launcher.directory / "events.jsonl"
    script = launcher.script("import os, signal\nif os.environ['RANK'] == '1': os.kill(0, 9)")
    launcher.run("-np", 2, "--events", file, script)
    ends = {event["rank"]: event["cause"] for event in events_in(file) if event["event"] == "ended"}
    assert ends == {0: None, 1: "killed by SIGKILL"}


WAITS = """
import os, time
import corro
import corro.numpy
corro.init()
corro.numpy.allreduce(1.0)
corro.set_step(1)
while corro.rank() == 1 and not os.path.exists("go"):
    time.sleep(0.01)
corro.set_step(2)
corro.numpy.allreduce(1.0)
"""


def test_a_hang_is_said_unasked_and_taken_back(launcher: Launcher) -> None:
    file = launcher.directory / "events.jsonl"
    screen = launcher.directory / "screen"
    with screen.open("wb") as err:
        job = launcher.start("-np", 2, "--events", file, launcher.script(WAITS), stderr=err)
    wait_until(lambda: "corro: rank 0 waits for rank 1 in" in screen.read_text(), "it is said")
    wait_until(lambda: 0 in ranks_of(events_in(file), "step"), "rank 0 is in its second step")
    (launcher.directory / "go").touch()
    assert job.wait() == 0
    text = screen.read_text()
    assert "allreduce #2" in text
    assert "; rank 1: step 1, last operation was allreduce #1" in text
    assert text.count("rank 0 waits for rank 1") == 1, "updated, not repeated"
    assert "corro: nobody waits for rank 1 any more, after" in text
    waits = [event for event in events_in(file) if event["event"] == "waiting"]
    assert [event["rank"] for event in waits] == [1, 1]
    assert "rank 0 waits for rank 1" in waits[0]["cause"]
    assert waits[1]["cause"] is None


def test_a_stopped_rank_is_called_stopped(launcher: Launcher) -> None:
    screen = launcher.directory / "screen"
    script = launcher.script(
        "import os, signal\nimport corro\nimport corro.numpy\ncorro.init()\n"
        "corro.numpy.allreduce(1.0)\n"
        "if corro.rank() == 1: open('pid', 'w').write(str(os.getpid())); "
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
        "corro.numpy.allreduce(1.0)\n"
    )
    with screen.open("wb") as err:
        job = launcher.start("-np", 2, script, stderr=err)
    wait_until(lambda: "rank 1: stopped; kill -CONT" in screen.read_text(), "it is said")
    job.send(9)


def test_events_that_cannot_be_written_are_one_line(launcher: Launcher) -> None:
    job = launcher.run("-np", 2, "--events", "/no/such/folder/x", "/bin/true")
    assert job.process.returncode == 2
    assert job.err.decode().splitlines()[-1].startswith("corro run: --events /no/such/folder/x")
    full = launcher.run("-np", 2, "--events", "/dev/full", "/bin/true")
    assert full.process.returncode == 0
    assert full.err.count(b"corro: events are missing: writing /dev/full") == 1
