"""Rows of plans: the table of docs/design/0002 on real ranks, and what a firing costs."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass
class PlanRow:
    op: str
    case: str
    predicted_us: float | None
    median_us: float
    ratio: float | None
    bar: float
    ok: bool


UNIT_US = 10_000  # A forward; plan_corro.cc waits so long instead of computing.

# Credits of the stages' stashes, units that a link takes, units that the executor predicts.
PIPELINES = [
    ("4,3,2,1", 0.0, 33),
    ("3,3,2,1", 0.0, 39),
    ("2,2,2,1", 0.0, 51),
    ("1,1,1,1", 0.0, 96),
    ("4,3,2,1", 0.5, 41),
    ("7,5,3,1", 0.5, 36),
]
PIPELINE_BAR = 1.05
FIRING_BARS = {"firing, inline lane": 1.0, "firing, two ranks": 3.0}  # Microseconds.

Launch = Callable[..., list[str]]


def _median(command: list[str]) -> float:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    lines = re.findall(r"\{.*\}", done.stdout)
    if done.returncode != 0 or not lines:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return float(json.loads(lines[-1])["median_us"])


def measure_plans(launch: Launch, programs: Path, rounds: int) -> list[PlanRow]:
    """`launch(ranks, *command)` returns the command of a job."""
    rows = []
    program = str(programs / "plan_corro")
    for credits, delay, units in PIPELINES:
        command = launch(4, program, "pipeline", credits, str(delay), str(3 * rounds))
        took, predicted = _median(command), float(units * UNIT_US)
        ratio = took / predicted
        case = f"pipeline {credits}" + (f", link {delay}" if delay else "")
        bar = PIPELINE_BAR
        rows.append(PlanRow("plan", case, predicted, took, ratio, bar, ratio <= bar))
    firings = {
        "firing, inline lane": [str(programs / "firing_inline")],
        "firing, two ranks": launch(2, program, "firing", str(rounds)),
    }
    for case, command in firings.items():
        took = statistics.median(_median(command) for _ in range(rounds))
        bar = FIRING_BARS[case]
        rows.append(PlanRow("plan", case, None, took, None, bar, took <= bar))
    return rows
