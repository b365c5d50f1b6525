"""`corro trace`: what all ranks did in their last steps, as Perfetto reads it."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from .conftest import Job, Launcher, wait_until

pytestmark = pytest.mark.faults

# Rank 1 comes to each step's first operation well after the others, and rests as long as `rest` is
# there.
STEPS = """
import os, time
import corro
import corro.numpy

corro.init()
step = 0
going = True
while going:
    corro.set_step(step := step + 1)
    others = [f"at-{step}-{rank}" for rank in (0, 2)]
    while corro.rank() == 1 and (os.path.exists("rest") or not all(map(os.path.exists, others))):
        time.sleep(0.01)
    if corro.rank() == 1:
        time.sleep(0.1)
    reduced = corro.numpy.allreduce_async([1.0] * 100)
    if corro.rank() != 1:
        open(f"at-{step}-{corro.rank()}", "w").close()
    corro.numpy.synchronize(reduced)
    going = corro.numpy.allreduce(float(not os.path.exists("end")), corro.Min) > 0
"""
NO_STEPS = STEPS.replace("corro.set_step(step := step + 1)", "step += 1")


def trace(launcher: Launcher, job: Job, *options: object) -> tuple[dict[str, Any], str]:
    """Returns the file's object, and what was said."""
    output = launcher.directory / "trace.json"
    command = [launcher.program, "trace", str(job.process.pid), "-o", str(output)]
    said = subprocess.run(
        [*command, *map(str, options)], capture_output=True, text=True, check=True
    )
    assert said.stdout == f"{output}: open it at https://ui.perfetto.dev\n"
    found: dict[str, Any] = json.loads(output.read_text())
    check_format(found)
    return found, said.stderr


def check_format(found: dict[str, Any]) -> None:
    """Fails unless it is what the format of Chrome's trace events asks for.

    Perfetto's own reader drops slices that overlap others of their thread without being inside.
    """
    threads = defaultdict(list)
    names = set()
    for event in found["traceEvents"]:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["args"], dict)
        if event["ph"] == "M":
            names.add((event["name"], event["pid"], event["tid"]))
            continue
        assert event["ph"] == "X"
        assert event["name"]
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        threads[event["pid"], event["tid"]].append(event)
    for (process, thread), slices in threads.items():
        assert ("process_name", process, 0) in names
        assert ("thread_name", process, thread) in names
        slices.sort(key=lambda one: float(one["ts"]))
        for one, next_one in pairwise(slices):
            assert one["ts"] + one["dur"] <= next_one["ts"] + 0.002, "to the nanosecond"


def slices_of(found: dict[str, Any], rank: int, name: str) -> list[dict[str, Any]]:
    return [
        event
        for event in found["traceEvents"]
        if event["ph"] == "X" and event["pid"] == rank and event["name"] == name
    ]


def start(launcher: Launcher, text: str = STEPS) -> Job:
    return launcher.start("-np", 3, "--quiet", launcher.script(text))


def step_of(launcher: Launcher, job: Job) -> int:
    doctor = [launcher.program, "doctor", "--json", str(job.process.pid)]
    said = subprocess.run(doctor, capture_output=True, text=True, check=False).stdout
    steps = [one["metrics"]["step"] for one in json.loads(said or "[]")]
    return min(steps) if len(steps) == 3 else 0


def end(launcher: Launcher, job: Job) -> None:
    (launcher.directory / "end").touch()
    assert job.wait() == 0


def test_whole_steps_of_all_ranks_show_who_was_late(launcher: Launcher) -> None:
    job = start(launcher)
    wait_until(lambda: step_of(launcher, job) > 10, "some steps")
    found, said = trace(launcher, job, "--steps", 3)
    end(launcher, job)
    assert said == ""
    assert found["otherData"]["note"] == ""
    for rank in range(3):
        done = [one["args"] for one in slices_of(found, rank, "allreduce")]
        oldest = min(one["step"] for one in done)
        whole = [one["number"] for one in done if one["step"] < oldest + 3]
        assert len(whole) == 6, "two operations in each of three steps"
    for rank in (0, 2):
        waits = [one["args"] for one in slices_of(found, rank, "wait")]
        assert {one["operation"] for one in waits} == {"allreduce"}
        firsts = [one for one in waits if one["elements"] == 100 and one["phase"] == "done"]
        assert firsts
        assert {one["awaits"] for one in firsts} == {"rank 1"}
    names = [one["args"] for one in found["traceEvents"] if one["name"] == "process_name"]
    assert [one["name"].split(" on ")[0] for one in names] == ["rank 0", "rank 1", "rank 2"]


def test_a_job_that_hangs_shows_for_whom(launcher: Launcher) -> None:
    (launcher.directory / "rest").touch()
    job = start(launcher)
    wait_until(lambda: step_of(launcher, job) == 1, "all are in the first step")

    def waits() -> list[dict[str, Any]]:
        return slices_of(trace(launcher, job)[0], 0, "wait")

    wait_until(lambda: len(waits()) == 1, "rank 0 waits")
    [wait] = waits()
    assert wait["args"]["awaits"] == "rank 1"
    assert wait["args"]["phase"] not in ("done", "failed")
    (launcher.directory / "rest").unlink()
    end(launcher, job)


def test_without_steps_all_is_shown_and_said(launcher: Launcher) -> None:
    job = start(launcher, NO_STEPS)
    wait_until((launcher.directory / "at-2-0").exists, "an operation is over")
    found, said = trace(launcher, job)
    end(launcher, job)
    assert "no rank tells its step (corro.set_step)" in said
    assert len(slices_of(found, 0, "allreduce")) > 0


def test_what_cannot_be_done_is_one_line(launcher: Launcher) -> None:
    job = start(launcher)
    wait_until(lambda: step_of(launcher, job) > 1, "steps")
    pid = str(job.process.pid)
    for arguments, said in (
        (["999999999"], "corro trace: no job 999999999 here"),
        ([pid, "-o", "/no/such/folder"], "corro trace: -o /no/such/folder: No such file"),
        ([pid, "--steps", "0"], "--steps"),
    ):
        told = subprocess.run(
            [launcher.program, "trace", *arguments], capture_output=True, text=True, check=False
        )
        assert told.returncode != 0
        assert said in told.stderr.splitlines()[0]
    end(launcher, job)
