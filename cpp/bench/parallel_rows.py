"""Rows of corro.parallelize(): steps by a plan, beside what torch has of the same kind, and beside
what a schedule takes in theory, and the plan that is picked beside all others."""

from __future__ import annotations

import statistics
import sys

from cluster import hosts_with_ssh, netns
from jobs import BENCH, PYTHON, Effort, Family, Line, corro_run, note, run
from rows import Row, compared, timed

BARS = {"torch-corro": 0.9, "gloo": 0.5}  # Of a peer's, which is torch over that back end.
WAYS = ("corro", *BARS)
SCHEDULES = ("1f1b", "interleaved", "zero_bubble")
SCHEDULE_BAR = 1.03  # Of the step that the literature has.
SLOW, LINK_BAR = "1gbit", 1 / 1.3  # Of data parallelism's, over such a link.
MODELS = ("mlp", "wide", "gpt", "convolutions", "encoder", "words")
LINKS = ("", "5gbit", "1gbit", "200mbit", "40mbit")  # Without one both ranks are on one host.
PICK_BAR = 1.05  # Of the fastest plan's.
CASES = ("zero3", "pipeline", "tensor")


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


def measure_schedules(effort: Effort) -> list[Row]:
    rows = []
    for schedule in SCHEDULES:
        note(f"parallelize, schedule {schedule}")
        times = str(effort.of(20, 5))
        script = str(BENCH / "schedule_corro.py")
        line = run(corro_run(4, "--show", "0", str(PYTHON), script, schedule, times))[-1]
        columns = {
            "case": f"schedule {schedule}",
            "theory_ms": line["theory_us"] / 1e3,
            "median_ms": line["us"] / 1e3,
            "of_simulated": line["us"] / line["simulated_us"],
        }
        ratio = line["us"] / line["theory_us"]
        rows.append(compared("parallelize", columns, line["us"], ratio, SCHEDULE_BAR))
    return rows


def end_without_namespaces() -> None:
    if refusal := netns.refusal():
        sys.exit(f"parallelize: {refusal}")


def measure_links(effort: Effort) -> list[Row]:
    """What is planned for a slow link, beside data parallelism."""
    end_without_namespaces()
    script, steps = str(BENCH / "parallel_torch.py"), str(effort.of(10, 5))
    taken: dict[str, list[float]] = {"planned": [], "data": []}
    with hosts_with_ssh() as cluster:
        cluster.hosts.limit(SLOW)
        for _ in range(effort.rounds):
            for case, times in taken.items():
                note(f"parallelize, {SLOW}: {case}")
                job = cluster.corro_run(str(PYTHON), script, case, "corro", steps)
                times.append(run(job, cluster.environment)[-1]["us"])
    ratios = [own / data for own, data in zip(taken["planned"], taken["data"], strict=True)]
    planned, data = (statistics.median(times) for times in taken.values())
    columns = {
        "case": f"{SLOW} between two hosts",
        "data_ms": data / 1e3,
        "median_ms": planned / 1e3,
    }
    return [compared("parallelize", columns, planned, statistics.median(ratios), LINK_BAR)]


def measure_picks(effort: Effort) -> list[Row]:
    end_without_namespaces()
    rows = []
    script, steps = str(BENCH / "picks_torch.py"), str(effort.of(9, 5))
    for link in LINKS:
        with hosts_with_ssh() as cluster:
            if link:
                cluster.hosts.limit(link)
            for name in MODELS:
                note(f"parallelize, picks: {name}, {link or 'one host'}")
                if link:
                    job = cluster.corro_run(str(PYTHON), script, name, steps)
                    lines = run(job, cluster.environment)
                else:
                    lines = run(corro_run(2, "--show", "0", str(PYTHON), script, name, steps))
                rows.append(pick_row(f"{name}, {link or 'one host'}", lines))
    return rows


def pick_row(case: str, lines: list[Line]) -> Row:
    fastest = min(lines, key=lambda line: line["us"])
    (picked,) = (line for line in lines if line["picked"])
    columns = {
        "case": case,
        "plans": len(lines),
        "picked": picked["plan"],
        "fastest": fastest["plan"],
        "median_ms": picked["us"] / 1e3,
    }
    ratio = picked["us"] / fastest["us"]
    return compared("parallelize", columns, picked["us"], ratio, PICK_BAR)


FAMILIES = {
    "parallelize": Family(measure_parallel),
    "parallelize-link": Family(measure_links),
    "parallelize-picks": Family(measure_picks, quick=False),
    "parallelize-schedules": Family(measure_schedules),
}
