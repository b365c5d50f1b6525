"""Rows of small operations from Python: small.py beside Gloo and a back end that does nothing."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Microseconds that the verbs may take, and that the back end may take beyond one that does nothing.
VERB_BARS = {"numpy": 2.5, "torch": 3.5}
BACK_END_BAR = 4.0

Figures = dict[str, tuple[float, float]]  # case: (min_us, median_us)
CorroRun = Callable[..., list[str]]


@dataclass
class SmallRow:
    op: str
    case: str
    peer: str
    min_us: float
    median_us: float
    ratio: float | None = None
    bar: float | None = None  # Microseconds.
    ok: bool = True


def measure_small(corro_run: CorroRun, python: Path, rounds: int, samples: int) -> list[SmallRow]:
    """Runs the back ends in turns; a figure is the median of the rounds' medians."""
    taken: dict[str, list[Figures]] = {}
    for _ in range(rounds):
        for backend in ("corro", "noop", "gloo"):
            taken.setdefault(backend, []).append(run_once(corro_run, python, backend, samples))
    figures = {backend: combine(runs) for backend, runs in taken.items()}
    ours = figures["corro"]
    bars = {case: bar_for(case, figures) for case in ours}
    rows = [row("corro", case, times, bar=bars[case]) for case, times in ours.items()]
    for peer in ("noop", "gloo"):
        for case, times in figures[peer].items():
            rows.append(row(peer, case, times, ratio=ours[case][1] / times[1]))
    return rows


def run_once(corro_run: CorroRun, python: Path, backend: str, samples: int) -> Figures:
    script = Path(__file__).with_name("small.py")
    bind = "none" if backend == "gloo" else "auto"  # Gloo has a thread of its own.
    command = corro_run("--bind", bind, str(python), str(script), backend, str(samples))
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    lines = [json.loads(line) for line in re.findall(r"\{.*\}", done.stdout)]
    return {line["case"]: (line["min_us"], line["median_us"]) for line in lines}


def combine(runs: list[Figures]) -> Figures:
    return {
        case: (min(run[case][0] for run in runs), statistics.median(run[case][1] for run in runs))
        for case in runs[0]
    }


def bar_for(case: str, figures: dict[str, Figures]) -> float | None:
    """Microseconds, beside a single allreduce of the same bytes; None: it is only shown."""
    if case == "distributed":
        return figures["noop"][case][1] + BACK_END_BAR
    if case in VERB_BARS:
        return VERB_BARS[case]
    place, memory, way = case.split("-")
    if way not in ("ordered", "named"):
        return None
    if place == "100x4000":
        return 400.0
    one = figures["corro"][f"{place}-{memory}-one"][1]
    return one * 1.3 if memory == "private" else one + 600.0


def row(
    peer: str,
    case: str,
    times: tuple[float, float],
    ratio: float | None = None,
    bar: float | None = None,
) -> SmallRow:
    ok = bar is None or times[1] <= bar
    return SmallRow("small", case, peer, *times, ratio=ratio, bar=bar, ok=ok)
