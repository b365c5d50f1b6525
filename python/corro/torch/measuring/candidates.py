"""The plans that are measured, and what the planner says of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import corro
from corro.errors import InvalidArgumentError, ResourceExhaustedError
from corro.model import ModelDescription
from corro.planned import Planned


@dataclass(slots=True)
class Candidate:
    """One plan; `planned` is None where the planner says that it does not fit."""

    data: int
    pipeline: int
    micro_batch: int
    micro_batches: int
    recompute: str
    planned: Planned | None = None
    reason: str = ""
    steps: list[float] = field(default_factory=list)
    """Measured seconds."""
    memory: list[int] = field(default_factory=list)
    """Measured bytes of each rank; empty where they cannot be."""

    @property
    def name(self) -> str:
        parts = [f"dp {self.data}", f"pp {self.pipeline}"]
        parts.append(f"micro-batch {self.micro_batch} x {self.micro_batches}")
        return ", ".join(parts + (["recompute"] if self.recompute == "full" else []))


@dataclass(frozen=True, slots=True)
class Question:
    """What decides all plans."""

    cluster: str
    ranks: int
    global_batch: int
    memory_limit: float | None = None


def micro_batches(question: Question) -> list[int]:
    """Returns all numbers of samples that a micro-batch of some plan has."""
    return sorted({each for data in _divisors(question.ranks) for each in _sizes(question, data)})


def candidates(question: Question, layers: int) -> list[Candidate]:
    """Returns all plans of data x pipeline x micro-batches x recomputation.

    Raises:
        InvalidArgumentError: the batch cannot be divided among the ranks in any way.
    """
    found = [
        Candidate(data, question.ranks // data, size, share // size, recompute)
        for data in _divisors(question.ranks)
        if question.ranks // data <= layers
        for share in [question.global_batch // data]
        for size in _sizes(question, data)
        for recompute in ("none", "full")
    ]
    if not found:
        raise InvalidArgumentError(
            f"--global-batch: {question.global_batch} samples cannot be divided among "
            f"{question.ranks} ranks"
        )
    return found


def predict(
    found: Sequence[Candidate],
    question: Question,
    description: ModelDescription,
    profile: dict[str, Any],
) -> None:
    """Asks the planner about each plan."""
    for each in found:
        pins = {
            "data": each.data,
            "pipeline": each.pipeline,
            "micro_batch": each.micro_batch,
            "recompute": each.recompute,
            "tensor": 1,
            "context": 1,
            "zero": 0,
            "schedule": "1f1b",
            "overlap": False,
            "offload": "off",
            "dtype": "f32",
        }
        try:
            each.planned = corro.plan(
                description,
                question.cluster,
                global_batch=question.global_batch,
                memory_limit=question.memory_limit,
                pins=pins,
                profile=profile,
            )
        except ResourceExhaustedError as error:
            each.reason = str(error)


def _sizes(question: Question, data: int) -> list[int]:
    if question.global_batch % data:
        return []
    return list(_divisors(question.global_batch // data))


def _divisors(number: int) -> Iterator[int]:
    return (each for each in range(1, number + 1) if number % each == 0)
