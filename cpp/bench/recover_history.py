"""What the processes of a job of the rows `recover` have said, and what follows from it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True)
class Step:
    when: int  # Nanoseconds.
    number: int
    size: int
    norm: float  # Of the model: each step makes it less.


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
                [Step(int(t), int(n), int(rest[0]), float(rest[1])) for word, t, n, *rest in lines
                 if word == "step"]
            )  # fmt: skip
            fate = max([fate, *(int(line[1]) for line in lines if line[0] == "fate")])
        return History(processes, fate)

    def recovery(self) -> float | None:
        """From the signal to the moment in which the slowest process has done its next step.

        Microseconds; None: no step came. Processes that came later count only where no other has
        gone on, as with torchrun, which starts all of them again.
        """
        went_on: list[int] = []
        came: list[int] = []
        for steps in self.steps:
            after = [step.when for step in steps if step.when > self.fate]
            if after:
                (came if steps[0].when > self.fate else went_on).append(after[0])
        firsts = went_on or came
        return (max(firsts) - self.fate) / 1e3 if firsts else None

    def keeps_model(self) -> bool:
        """Whether steps after the signal went on from the model of before, not from a new one."""
        before = [step.norm for steps in self.steps for step in steps if step.when < self.fate]
        after = [step.norm for steps in self.steps for step in steps if step.when > self.fate]
        return max(after) < statistics.mean([min(before), max(before)])

    def lost(self) -> int:
        """Steps that were done on all ranks before the signal, and again after it."""
        before = [step.number for steps in self.steps for step in steps if step.when < self.fate]
        after = [step.number for steps in self.steps for step in steps if step.when > self.fate]
        return max(0, max(before) - min(after)) if before and after else 0

    def stall(self) -> float:
        """By how much the step in which ranks join or leave takes longer than others, in us."""
        worst = 0.0
        for steps in self.steps:
            pairs = list(pairwise(steps))
            gaps = [(after.when - before.when) / 1e3 for before, after in pairs]
            changes = [
                gap
                for gap, (before, after) in zip(gaps, pairs, strict=True)
                if after.size != before.size
            ]
            if changes:
                worst = max(worst, max(changes) - statistics.median(gaps))
        return worst


def history(run: Callable[[Path], None]) -> History | None:
    """Runs a job; None if it did not come to its end."""
    with tempfile.TemporaryDirectory(prefix="corro-bench-") as name:
        try:
            run(Path(name))
        except (subprocess.TimeoutExpired, TimeoutError):
            return None
        found = History.read(Path(name))
        if not any(found.steps):
            sys.exit(f"recover: no step\n{(Path(name) / 'log').read_text()}")
        return found
