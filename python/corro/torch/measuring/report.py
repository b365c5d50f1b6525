"""Shows what was predicted and what was measured, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

from corro.torch.measuring.candidates import Candidate, Question


def table(found: Sequence[Candidate]) -> str:
    """Returns a line for each plan, the fastest measured first, and what they say together."""
    lines = [
        f"{'plan':44} {'predicted':>10} {'measured':>10} {'error':>7} {'memory':>26} {'error':>7}"
    ]
    measured = sorted((each for each in found if each.steps), key=lambda each: median(each.steps))
    for each in measured:
        said, took = _step(each), median(each.steps)
        line = f"{each.name:44} {said:8.3f} s {took:8.3f} s {_percent(said / took - 1):>7}"
        if each.memory:
            number, expected, was = _fullest(each)
            amounts = f"{expected / 2**20:.0f} of {was / 2**20:.0f} MiB (rank {number})"
            line += f" {amounts:>26} {_percent(expected / was - 1):>7}"
        lines.append(line)
    lines += [f"{each.name:44} {each.reason}" for each in found if not each.steps]
    return "\n".join([*lines, "", *_conclusions(measured)])


def _conclusions(measured: Sequence[Candidate]) -> list[str]:
    if not measured:
        return ["No plan fits."]
    result = summary(measured)
    lines = [
        f"Steps are predicted within {result['step_error']:.1%} on average, "
        f"{result['worst_step_error']:.1%} at most."
    ]
    if "memory_error" in result:
        lines.append(
            f"Memory of the fullest rank within {result['memory_error']:.1%} on average, "
            f"{result['worst_memory_error']:.1%} at most."
        )
    picked = result["picked"]
    behind = result["picked_behind"]
    lines.append(
        f"The plan picked ({picked}) is the fastest measured."
        if behind == 0
        else f"The plan picked ({picked}) is {behind:.1%} slower than the fastest measured."
    )
    return lines


def summary(measured: Sequence[Candidate]) -> dict[str, Any]:
    """Returns the errors as fractions, and what the pick costs beside the fastest measured plan."""
    errors = [abs(_step(each) / median(each.steps) - 1) for each in measured]
    picked = min(measured, key=_step)
    fastest = min(median(each.steps) for each in measured)
    result = {
        "step_error": mean(errors),
        "worst_step_error": max(errors),
        "picked": picked.name,
        "picked_behind": median(picked.steps) / fastest - 1,
    }
    memory = [_fullest(each) for each in measured if each.memory]
    if memory:
        sizes = [abs(expected / was - 1) for _, expected, was in memory]
        result |= {"memory_error": mean(sizes), "worst_memory_error": max(sizes)}
    return result


def document(
    found: Sequence[Candidate], question: Question, profile: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns everything as JSON: the profile, each plan, the summary."""
    measured = [each for each in found if each.steps]
    return {
        "corro_measured": 1,
        "global_batch": question.global_batch,
        "ranks": question.ranks,
        "profile": profile,
        "plans": [
            {
                "data": each.data,
                "pipeline": each.pipeline,
                "micro_batch": each.micro_batch,
                "micro_batches": each.micro_batches,
                "recompute": each.recompute,
                "fits": each.planned is not None,
                "predicted_seconds": _step(each) if each.planned else None,
                "measured_seconds": each.steps,
                "predicted_bytes": _predicted_memory(each) if each.planned else [],
                "measured_bytes": each.memory,
            }
            for each in found
        ],
        "summary": summary(measured) if measured else {},
    }


def _step(each: Candidate) -> float:
    assert each.planned is not None
    return each.planned.step


def _predicted_memory(each: Candidate) -> list[float]:
    """Returns the bytes of each rank."""
    assert each.planned is not None
    return [stage.total for stage in each.planned.memory for _ in range(each.data)]


def _fullest(each: Candidate) -> tuple[int, float, int]:
    """Returns the rank that had most, what was predicted of it, and what it had."""
    number = max(range(len(each.memory)), key=each.memory.__getitem__)
    return number, _predicted_memory(each)[number], each.memory[number]


def _percent(error: float) -> str:
    return f"{100 * error:+.1f} %"
