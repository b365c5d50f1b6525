"""What families of rows share: where things are, how a job is run, and what it prints."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rows import Row, timed

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "cpp/bench"
PROGRAMS = ROOT / "build/release/cpp/bench"
CORRO = ROOT / ".venv/bin/corro"
PYTHON = ROOT / ".venv/bin/python"
OUT = ROOT / "build/bench"

Line = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """What is asked for: how long to measure, a checkout to compare with, and environments of
    Python that have Horovod for torch and for TensorFlow."""

    quick: bool
    base: Path | None = None
    horovod: Path | None = None
    horovod_tensorflow: Path | None = None

    def of(self, often: int, seldom: int) -> int:
        return seldom if self.quick else often

    @property
    def rounds(self) -> int:
        return self.of(3, 1)


@dataclass(frozen=True)
class Family:
    """Rows that are measured together. What is not `quick` takes minutes and is left out of a quick
    run of everything."""

    measure: Callable[[Effort], list[Row]]
    quick: bool = True


def repeated(
    op: str, once: Callable[[], float], bar: float, times: tuple[int, int], ranks: int = 2
) -> Family:
    """A family of one row; `times`: how often to measure, and how often in a quick run."""

    def measure(effort: Effort) -> list[Row]:
        taken = [once() for _ in range(effort.of(*times))]
        columns = {"ranks": ranks, "min_us": min(taken)}
        return [timed(op, columns, statistics.median(taken), bar)]

    return Family(measure)


def corro_run(ranks: int, *command: str, root: Path = ROOT) -> list[str]:
    """Returns the command of a job; `command` may begin with options of `corro run`."""
    program = root / CORRO.relative_to(ROOT)
    return [str(program), "run", "-np", str(ranks), "--log-dir", str(OUT / "logs"), *command]


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> list[Line]:
    """Runs a driver to its end and returns its lines of JSON; ends this program if it fails."""
    place = {**os.environ, **(environment or {})}
    done = subprocess.run(
        command, env=place, capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return lines_of(done.stdout)


def lines_of(output: str) -> list[Line]:
    return [json.loads(line) for line in re.findall(r"\{.*\}", output)]


def note(text: str) -> None:
    """One line of progress, on a terminal over the one before."""
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"bench: {text:<70}", end=end, file=sys.stderr, flush=True)


def skipped(text: str) -> None:
    """One line that stays, of rows that are left out."""
    print(f"bench: {text}", file=sys.stderr, flush=True)
