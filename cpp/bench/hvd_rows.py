"""Rows of corro-horovod: the same script on corro and, where there is one, on Horovod."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path

from horovod_env import horovod_run
from jobs import BENCH, PYTHON, Effort, Family, Line, note, run
from rows import Row, compared, timed

OURS = PYTHON.parents[1]
VERB_BARS = {"4 B": 0.01, "1 MiB": 0.1, "64 MiB": 0.25, "100 x 1000": 0.1, "200 x 64 KiB": 0.4}
MODELS = ["resnet50", "gpt2-small"]
COMMUNICATION_BAR = 0.25
IDLE_BAR = 500.0  # Microseconds in a second: 0.05 % of a core.
START_BAR = 1.1  # Of two bare imports side by side.
MEMORY_BAR = 0.1  # Of the gradients' bytes: a copy of them would be 1.

Figures = dict[str, list[Line]]  # By peer: the rounds' lines of one case.


def measure_hvd(effort: Effort) -> list[Row]:
    rows = [
        beside("hvd", case, {peer: of(lines, case) for peer, lines in taken.items()}, bar)
        for taken in [in_turns(effort, "verbs", effort.of(60, 20))]
        for case, bar in VERB_BARS.items()
    ]
    for model in MODELS:
        rows += rows_of_steps(model, in_turns(effort, model, effort.of(12, 5)))
    return [*rows, *rows_of_idle(in_turns(effort, "idle", effort.of(5, 2)))]


def in_turns(effort: Effort, what: str, amount: int) -> Figures:
    """Runs the peers in turns; returns all lines of each."""
    environments = {"corro": OURS}
    if effort.horovod is not None:
        environments["horovod"] = effort.horovod
    taken: Figures = {peer: [] for peer in environments}
    for number in range(effort.rounds):
        for peer, environment in environments.items():
            note(f"hvd, {what}, round {number + 1}/{effort.rounds}: {peer}")
            taken[peer] += run(command(environment, str(BENCH / "hvd_cases.py"), what, str(amount)))
    return taken


def command(environment: Path, *script: str) -> list[str]:
    return horovod_run(environment, 2, *script)


def of(lines: list[Line], case: str, key: str = "us") -> float:
    return statistics.median(line[key] for line in lines if line["case"] == case)


def beside(op: str, case: str, medians: dict[str, float], bar: float | None) -> Row:
    """corro's median, and its ratio to Horovod's."""
    theirs = medians.get("horovod")
    columns = {"case": case, "horovod_us": theirs}
    if theirs is None:
        return timed(op, columns, medians["corro"])
    return compared(op, columns, medians["corro"], medians["corro"] / theirs, bar)


def rows_of_steps(model: str, taken: Figures) -> list[Row]:
    steps = {peer: of(lines, model) for peer, lines in taken.items()}
    # Not below a microsecond: on a disturbed machine the step with communication can be faster.
    parts = {
        peer: max(1.0, steps[peer] - of(lines, model, "alone_us")) for peer, lines in taken.items()
    }
    rows = [
        beside("hvd", f"{model}, step", steps, 1.0),
        beside("hvd", f"{model}, communication", parts, COMMUNICATION_BAR),
    ]
    for peer, lines in taken.items():
        extra, gradients = of(lines, model, "extra_bytes"), of(lines, model, "gradient_bytes")
        columns = {"case": model, "peer": peer, "extra_mib": extra / (1 << 20)}
        bar = MEMORY_BAR if peer == "corro" else None
        rows.append(compared("hvd_memory", columns, 0.0, extra / gradients, bar))
    return rows


def rows_of_idle(taken: Figures) -> list[Row]:
    return [
        timed("hvd_idle", {"peer": peer}, of(lines, "idle"), IDLE_BAR if peer == "corro" else None)
        for peer, lines in taken.items()
    ]


# -- start ----------------------------------------------------------------------------------------


def measure_start(effort: Effort) -> list[Row]:
    """`horovodrun -np 2 python -c 'import horovod.torch'` beside two bare imports of torch."""
    commands = {"two imports": [[str(PYTHON), "-c", "import torch"]] * 2}
    commands["corro"] = [command(OURS, "-c", "import horovod.torch")]
    if effort.horovod is not None:
        commands["horovod"] = [command(effort.horovod, "-c", "import horovod.torch")]
    taken: dict[str, list[float]] = {peer: [] for peer in commands}
    for _ in range(effort.of(7, 3)):
        for peer, side_by_side in commands.items():
            taken[peer].append(seconds_of(side_by_side) * 1e6)
    medians = {peer: statistics.median(times) for peer, times in taken.items()}
    bare = medians["two imports"]
    return [
        compared(
            "hvd_start",
            {"peer": peer},
            median,
            median / bare,
            START_BAR if peer == "corro" else None,
        )
        for peer, median in medians.items()
    ]


def seconds_of(side_by_side: list[list[str]]) -> float:
    start = time.perf_counter()
    running = [
        subprocess.Popen(one, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for one in side_by_side
    ]
    if any(process.wait() != 0 for process in running):
        raise SystemExit(f"{side_by_side}: exit status {[p.returncode for p in running]}")
    return time.perf_counter() - start


FAMILIES = {
    "hvd": Family(measure_hvd, quick=False),
    "hvd_start": Family(measure_start, quick=False),
}
