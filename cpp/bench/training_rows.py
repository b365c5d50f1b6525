"""Rows of training: what communication adds to a step."""

from __future__ import annotations

import statistics

from jobs import BENCH, PYTHON, Effort, corro_run, run
from rows import Row, compared

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


FAMILIES = {"step": measure_step}
