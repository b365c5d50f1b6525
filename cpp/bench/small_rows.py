"""Rows of small operations from Python: small.py beside Gloo and a back end that does nothing."""

from __future__ import annotations

import statistics

from jobs import BENCH, PYTHON, Effort, Family, corro_run, run
from rows import Row, timed

# Microseconds that the verbs may take, and that the back end may take beyond one that does nothing.
VERB_BARS = {"numpy": 2.5, "torch": 3.5}
BACK_END_BAR = 4.0

Figures = dict[str, tuple[float, float]]  # case: (min_us, median_us)


def measure_small(effort: Effort) -> list[Row]:
    """Runs the back ends in turns; a figure is the median of the rounds' medians."""
    taken: dict[str, list[Figures]] = {}
    for _ in range(effort.rounds):
        for backend in ("corro", "noop", "gloo"):
            taken.setdefault(backend, []).append(run_once(backend, effort.of(60, 20)))
    figures = {backend: combine(runs) for backend, runs in taken.items()}
    ours = figures["corro"]
    bars = {case: bar_for(case, figures) for case in ours}
    rows = [row("corro", case, times, bar=bars[case]) for case, times in ours.items()]
    for peer in ("noop", "gloo"):
        for case, times in figures[peer].items():
            rows.append(row(peer, case, times, ratio=ours[case][1] / times[1]))
    return rows


def run_once(backend: str, samples: int) -> Figures:
    bind = "none" if backend == "gloo" else "auto"  # Gloo has a thread of its own.
    script = str(BENCH / "small.py")
    lines = run(corro_run(2, "--bind", bind, str(PYTHON), script, backend, str(samples)))
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
) -> Row:
    columns = {"case": case, "peer": peer, "min_us": times[0]}
    return timed("small", columns, times[1], bar, ratio)


FAMILIES = {"small": Family(measure_small)}
