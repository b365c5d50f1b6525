"""Rows of corro.parallelize(): steps by a plan, beside what torch has of the same kind."""

from __future__ import annotations

import statistics

from jobs import BENCH, PYTHON, Effort, Family, Line, corro_run, note, run
from rows import Row, compared, timed

BARS = {"torch-corro": 0.9, "gloo": 0.5}  # Of a peer's, which is torch over that back end.
WAYS = ("corro", *BARS)
CASES = ("zero3", "pipeline")


def measure_parallel(effort: Effort) -> list[Row]:
    return [row for case in CASES for row in rows_of(case, effort)]


def rows_of(case: str, effort: Effort) -> list[Row]:
    script, steps = str(BENCH / "parallel_torch.py"), str(effort.of(10, 5))
    taken: dict[str, list[Line]] = {way: [] for way in WAYS}
    for number in range(effort.rounds):
        for way, lines in taken.items():
            note(f"parallelize, {case}, round {number + 1}/{effort.rounds}: {way}")
            bind = "none" if way == "gloo" else "auto"  # Gloo has a thread of its own.
            job = corro_run(2, "--bind", bind, "--show", "0", str(PYTHON), script)
            lines.extend(run([*job, case, way, steps]))
    return [row_of(case, way, taken) for way in WAYS]


def row_of(case: str, way: str, taken: dict[str, list[Line]]) -> Row:
    times = [line["us"] for line in taken[way]]
    ratios = [own["us"] / us for own, us in zip(taken["corro"], times, strict=True)]
    middle = statistics.median(times)
    columns = {
        "case": case,
        "peer": way,
        "min_us": min(line["min_us"] for line in taken[way]),
        "ratios": None if way == "corro" else f"{min(ratios):.3g} to {max(ratios):.3g}",
        "median_ms": middle / 1e3,
    }
    if way == "corro":
        return timed("parallelize", columns, middle)
    return compared("parallelize", columns, middle, statistics.median(ratios), BARS[way])


FAMILIES = {"parallelize": Family(measure_parallel)}
