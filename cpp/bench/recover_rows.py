"""Rows of ranks that are lost and that join: how soon the others train on."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from jobs import BENCH, PYTHON, Effort, Family, corro_run
from rows import Row, missing, timed

WORKER = BENCH / "recover_worker.py"
RANKS = 3
FATAL = 105
PATIENCE = 240  # Seconds for a job.
BARS = {"kill": 1e6, "stop": 5e6, "join": 0.5e6}  # Microseconds, of corro.


@dataclass(frozen=True)
class Step:
    when: int  # Nanoseconds.
    number: int
    size: int


@dataclass(frozen=True)
class History:
    """What the processes of a job have said, by process."""

    steps: list[list[Step]]
    fate: int  # When the victim's signal was sent; 0: never.

    @staticmethod
    def read(folder: Path) -> History:
        processes, fate = [], 0
        for path in folder.glob("*.txt"):
            lines = [line.split() for line in path.read_text().splitlines()]
            processes.append(
                [Step(int(t), int(n), int(size)) for word, t, n, *rest in lines
                 if word == "step" for size in rest]
            )  # fmt: skip
            fate = max([fate, *(int(line[1]) for line in lines if line[0] == "fate")])
        return History(processes, fate)

    def recovery(self) -> float:
        """From the signal to the moment in which the slowest process has done its next step.

        Microseconds. A process that came later counts like one that was there.
        """
        firsts = [
            next((step.when for step in steps if step.when > self.fate), None)
            for steps in self.steps
        ]
        return (max(when for when in firsts if when is not None) - self.fate) / 1e3

    def lost(self) -> int:
        """Steps that were done on all ranks before the signal, and again after it."""
        before = [step.number for steps in self.steps for step in steps if step.when < self.fate]
        after = [step.number for steps in self.steps for step in steps if step.when > self.fate]
        return max(0, max(before) - min(after)) if before and after else 0

    def stall(self) -> float:
        """By how much the step in which a rank joins takes longer than others. Microseconds."""
        worst = 0.0
        for steps in self.steps:
            pairs = list(pairwise(steps))
            gaps = [(after.when - before.when) / 1e3 for before, after in pairs]
            joins = [
                gap
                for gap, (before, after) in zip(gaps, pairs, strict=True)
                if after.size > before.size
            ]
            if joins:
                worst = max(worst, max(joins) - statistics.median(gaps))
        return worst


@contextmanager
def started(command: list[str], log: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a group of its own, which is ended with all that it has started."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **env}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def train(folder: Path, steps: int, fate: list[str], options: list[str]) -> None:
    command = corro_run(RANKS if fate else RANKS - 1, *options, str(PYTHON), str(WORKER))
    with started([*command, str(folder), str(steps), *fate], folder / "log") as job:
        job.wait(PATIENCE)


def history(run: Callable[[Path], None]) -> History | None:
    """Runs a job; None if it did not come to its end."""
    with tempfile.TemporaryDirectory(prefix="corro-bench-") as name:
        try:
            run(Path(name))
        except subprocess.TimeoutExpired:
            return None
        found = History.read(Path(name))
        if not any(found.steps):
            sys.exit(f"recover: no step\n{(Path(name) / 'log').read_text()}")
        return found


def lost_row(effort: Effort, case: str) -> Row:
    """A rank of three gets a signal."""
    options, fate = ["--min-np", "2"], [case, str(FATAL)]
    ended = [
        history(lambda folder: train(folder, FATAL + 100, fate, options))
        for _ in range(effort.of(10, 2))
    ]
    done = [one for one in ended if one is not None and one.fate]
    columns = {"case": case, "ranks": RANKS}
    if len(done) < len(ended):
        return missing("recover", {**columns, "lost": "the job", "max_us": None})
    times = [one.recovery() for one in done]
    lost = max(one.lost() for one in done)
    return timed(
        "recover",
        {**columns, "lost": lost, "max_us": max(times)},
        statistics.median(times),
        BARS[case],
    )


def join_row(effort: Effort) -> Row:
    """A rank joins two that train."""
    options = ["--max-np", str(RANKS)]
    stalls = []
    columns: dict[str, object] = {"case": "join", "ranks": RANKS}
    for _ in range(effort.of(10, 2)):
        found = history(lambda folder: train(folder, 1000, [], options))
        if found is None or not found.stall():
            return missing("recover", {**columns, "lost": "", "max_us": None})
        stalls.append(found.stall())
    columns |= {"lost": 0, "max_us": max(stalls)}
    return timed("recover", columns, statistics.median(stalls), BARS["join"])


def measure(effort: Effort) -> list[Row]:
    return [lost_row(effort, "kill"), lost_row(effort, "stop"), join_row(effort)]


FAMILIES = {"recover": Family(measure, quick=False)}
