"""Rows of training: what communication adds to a step."""

from __future__ import annotations

import statistics

from jobs import BENCH, PYTHON, Effort, Family, corro_run, note, run
from rows import Row, compared

MODELS = ["resnet50", "gpt2-small"]
EXPOSED_BARS = {"ddp-gloo": None, "ddp-corro": 0.4, "optimizer": 0.25}  # Of ddp-gloo's.

Figures = dict[str, float]


def measure_step(effort: Effort) -> list[Row]:
    """1 000 parameters of 16 elements: the ratio is to the same step without communication."""
    command = [str(PYTHON), str(BENCH / "step_torch.py"), str(effort.of(3, 1))]
    taken = [figures(corro_run(2, "--show", "0", *command)) for _ in range(3)]
    with_us, without_us = medians(taken, "with"), medians(taken, "without")
    columns = {"case": "1000x16", "peer": "optimizer", "alone_us": without_us}
    ratio, bar = with_us / without_us, 1.1 + 3e3 / without_us
    return [compared("step", columns, with_us, ratio, bar)]


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
