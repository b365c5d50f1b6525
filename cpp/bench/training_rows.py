"""Rows of training: what communication adds to a step."""

from __future__ import annotations

import statistics

from horovod_env import horovod_run
from jobs import BENCH, PYTHON, Effort, Family, corro_run, note, run
from rows import Row, compared

MODELS = ["resnet50", "gpt2-small"]
EXPOSED_BARS = {"ddp-gloo": None, "ddp-corro": 0.4, "optimizer": 0.25}  # Of ddp-gloo's.

Figures = dict[str, float]


def measure_step(effort: Effort) -> list[Row]:
    """1 000 parameters of 16 elements."""
    script, seconds = str(BENCH / "step_torch.py"), str(effort.of(3, 1))
    command = [str(PYTHON), script, "corro.torch", seconds]
    jobs = {"optimizer": corro_run(2, "--show", "0", *command)}
    if effort.horovod is not None:
        jobs["horovod"] = horovod_run(effort.horovod, 2, script, "horovod.torch", seconds)
    taken: dict[str, list[Figures]] = {peer: [] for peer in jobs}
    for number in range(3):
        for peer, lines in taken.items():
            note(f"step, round {number + 1}/3: {peer}")
            lines.append(figures(jobs[peer]))
    return [step_row(peer, taken) for peer in taken]


def step_row(peer: str, taken: dict[str, list[Figures]]) -> Row:
    """corro's ratio is to the same step without communication; a peer's is corro's step to its."""
    with_us, without_us = medians(taken[peer], "with"), medians(taken[peer], "without")
    columns = {"case": "1000x16", "peer": peer, "alone_us": without_us}
    if peer == "optimizer":
        return compared("step", columns, with_us, with_us / without_us, 1.1 + 3e3 / without_us)
    return compared("step", columns, with_us, medians(taken["optimizer"], "with") / with_us)


def figures(command: list[str]) -> Figures:
    [line] = run(command)
    return line


def medians(taken: list[Figures], key: str) -> float:
    return statistics.median(line[key] for line in taken)


def measure_exposed(effort: Effort) -> list[Row]:
    return [row for model in MODELS for row in exposed_of(model, effort)]


def exposed_of(model: str, effort: Effort) -> list[Row]:
    """The ratio is to what DDP over Gloo exposes."""
    script, steps = str(BENCH / "exposed_torch.py"), str(effort.of(6, 3))
    taken: dict[str, list[Figures]] = {way: [] for way in EXPOSED_BARS}
    for number in range(effort.rounds):
        for way, lines in taken.items():
            note(f"exposed, {model}, round {number + 1}/{effort.rounds}: {way}")
            bind = "none" if way == "ddp-gloo" else "auto"  # Gloo has a thread of its own.
            job = corro_run(2, "--bind", bind, "--show", "0", str(PYTHON), script)
            lines.append(figures([*job, model, way, steps]))
    # Not below a microsecond: on a disturbed machine the step with communication can be faster.
    gloo = max(1.0, medians(taken["ddp-gloo"], "exposed"))
    rows = []
    for way, lines in taken.items():
        columns = {"case": model, "peer": way, "alone_us": medians(lines, "alone")}
        exposed, bar = medians(lines, "exposed"), EXPOSED_BARS[way]
        rows.append(compared("exposed", columns, exposed, exposed / gloo, bar))
    return rows


FAMILIES = {"step": Family(measure_step), "exposed": Family(measure_exposed, quick=False)}
