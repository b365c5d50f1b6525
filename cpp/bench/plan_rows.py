"""Rows of plans: the table of docs/design/0002 on real ranks, and what a firing costs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from jobs import PROGRAMS, Effort, Family, corro_run, run
from rows import Row, compared, timed

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


def _median(command: Sequence[str]) -> float:
    return float(run(command)[-1]["median_us"])


def measure_plans(effort: Effort) -> list[Row]:
    rows = []
    program = str(PROGRAMS / "plan_corro")
    for credits, delay, units in PIPELINES:
        times = str(3 * effort.rounds)
        took = _median(corro_run(4, program, "pipeline", credits, str(delay), times))
        predicted = float(units * UNIT_US)
        case = f"pipeline {credits}" + (f", link {delay}" if delay else "")
        columns = {"case": case, "predicted_us": predicted}
        rows.append(compared("plan", columns, took, took / predicted, PIPELINE_BAR))
    firings = {
        "firing, inline lane": [str(PROGRAMS / "firing_inline")],
        "firing, two ranks": corro_run(2, program, "firing", str(effort.rounds)),
    }
    for case, command in firings.items():
        took = statistics.median(_median(command) for _ in range(effort.rounds))
        columns = {"case": case, "predicted_us": None}
        rows.append(timed("plan", columns, took, FIRING_BARS[case]))
    return rows


FAMILIES = {"plan": Family(measure_plans)}
