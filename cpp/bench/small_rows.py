"""Rows of small operations from Python: small.py beside Gloo, a back end that does nothing, and
Horovod where there is one."""

from __future__ import annotations

import statistics
from pathlib import Path

from horovod_env import horovod_run
from jobs import BENCH, PYTHON, Effort, Family, corro_run, run
from rows import Row, compared, timed

# Microseconds that the verbs may take, and that the back end may take beyond one that does nothing.
VERB_BARS = {"numpy": 2.5, "torch": 3.5}
BACK_END_BAR = 4.0
# What corro may take of a peer's time.
RATIO_BARS = {("horovod", "100x4000-private-named"): 0.1}

Figures = dict[str, tuple[float, float]]  # case: (min_us, median_us)


def measure_small(effort: Effort) -> list[Row]:
    """Runs the back ends in turns; a figure is the median of the rounds' medians."""
    taken: dict[str, list[Figures]] = {}
    samples = effort.of(60, 20)
    jobs = {backend: backend_job(backend, samples) for backend in ("corro", "noop", "gloo")}
    if effort.horovod is not None:
        jobs["horovod"] = horovod_job(effort.horovod, samples)
    for _ in range(effort.rounds):
        for peer, job in jobs.items():
            taken.setdefault(peer, []).append(run_once(job))
    figures = {peer: combine(runs) for peer, runs in taken.items()}
    return [row for peer in figures for row in rows_of(peer, figures)]


def backend_job(backend: str, samples: int) -> list[str]:
    bind = "none" if backend == "gloo" else "auto"  # Gloo has a thread of its own.
    script = str(BENCH / "small.py")
    return corro_run(2, "--bind", bind, str(PYTHON), script, backend, str(samples))


def horovod_job(environment: Path, samples: int) -> list[str]:
    return horovod_run(environment, 2, str(BENCH / "small_horovod.py"), str(samples))


def run_once(job: list[str]) -> Figures:
    return {line["case"]: (line["min_us"], line["median_us"]) for line in run(job)}


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


def rows_of(peer: str, figures: dict[str, Figures]) -> list[Row]:
    ours, rows = figures["corro"], []
    for case, (least, median) in figures[peer].items():
        columns = {"case": case, "peer": peer, "min_us": least}
        if peer == "corro":
            rows.append(timed("small", columns, median, bar_for(case, figures)))
        else:
            ratio, bar = ours[case][1] / median, RATIO_BARS.get((peer, case))
            rows.append(compared("small", columns, median, ratio, bar))
    return rows


FAMILIES = {"small": Family(measure_small)}
