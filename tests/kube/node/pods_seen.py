"""What pods of a real node print and run, and how long it took.

lines = Log(space, "a-launcher-x7fq2")
step = lines.wait("step 20")                 # (when the kubelet's log has it, the text)
measured("pod deleted -> ranks step again", step.when - begun)
"""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from api import ApiError
from harness import wait_until
from jobs import PATIENCE, Job, Space

Object = dict[str, Any]

RANK = r"^\S*python\S* /examples/"
STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\S+Z) (.*)")  # The kubelet's own words have no time.
MEASURED: list[str] = []


@dataclass(frozen=True)
class Line:
    when: float  # Seconds since 1970, by the node's clock, which is this machine's.
    text: str


def seconds_of(text: str) -> float:
    """2026-11-25T09:00:00.123456789Z"""
    whole, _, fraction = text.rstrip("Z").partition(".")
    moment = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return moment.timestamp() + float(f"0.{fraction or 0}")


def log(space: Space, pod: str) -> list[Line]:
    """What a container has printed, through the API server and the kubelet."""
    try:
        answer = space.api.get(space.path("Pod", pod) + "/log", timestamps="true")
    except ApiError as error:
        if error.code == 400:  # It has not started yet.
            return []
        raise
    found = [STAMPED.match(line) for line in str(answer.get("message", "")).splitlines()]
    return [Line(seconds_of(each[1]), each[2]) for each in found if each]


def wait_for_line(space: Space, pod: str, pattern: str, after: float = 0.0) -> Line:
    """The first line after that time in which the pattern is found."""

    def found() -> Line | None:
        fitting = [each for each in log(space, pod) if each.when > after]
        return next((each for each in fitting if re.search(pattern, each.text)), None)

    try:
        line: Line = wait_until(found, f'"{pattern}" in the log of {pod}', PATIENCE)
    except AssertionError as error:
        said = "\n".join(each.text for each in log(space, pod)[-20:])
        raise AssertionError(f"{error}; it says:\n{said}") from None
    return line


def measured(what: str, seconds: float) -> None:
    """For people, and for docs/benchmarks.md: shown at the end, and never asserted."""
    MEASURED.append(f"measured: {what} {seconds:.1f} s")


def processes_of(pod: Object, pattern: str) -> list[int]:
    """Processes in the pod's containers whose command line has the pattern."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            group = (folder / "cgroup").read_text()
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # It has gone.
            continue
        if pod["metadata"]["uid"] in group and re.search(pattern, words):
            found.append(int(folder.name))
    return found


def ranks_of(pod: Object) -> list[int]:
    return processes_of(pod, RANK)


def wait_for_ranks(job: Job, workers: int = 2) -> float:
    """When each worker's pod had a rank; the kernel's clock, to 10 ms."""

    def found() -> list[list[int]]:
        ranks = [ranks_of(pod) for pod in job.pods().values()]
        return ranks if len(ranks) == workers and all(ranks) else []

    ranks = wait_until(found, "a rank in each worker", PATIENCE)
    return max(start_of(pid) for pids in ranks for pid in pids)


def start_of(pid: int) -> float:
    """When a process was started, in seconds since 1970."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot


def kill_rank(pod: Object) -> None:
    """SIGKILL to the only rank in the pod."""
    [pid] = ranks_of(pod)
    os.kill(pid, signal.SIGKILL)


def launcher_of(job: Job) -> str:
    """The name of the launcher's pod, ended or not, once it is there."""

    def found() -> list[str]:
        return [name for name in job.objects("Pod") if "-launcher" in name]

    [name] = wait_until(found, "the launcher's pod", PATIENCE)
    return str(name)


def head_of(job: Job) -> str:
    """The name of the head's pod, once it is there."""
    [name] = wait_until(lambda: job.pods("head"), "the head", PATIENCE)
    return str(name)
