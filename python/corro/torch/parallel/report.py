"""What a plan has predicted, beside what its steps take."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corro._context import Group
from corro._objects import allgather_object
from corro.planned import Planned, Stage
from corro.torch.parallel.clock import COMPUTE, SYNC, TERMS, UPDATE, WEIGHTS, Clock

_SKIPPED = 1  # The first step makes stand-ins, compiles, allocates.


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that takes time or memory."""

    name: str
    planned: float
    measured: float


@dataclass(frozen=True, slots=True)
class Report:
    """A plan's prediction and its measured steps; the same on all ranks. Prints as a table."""

    steps: int
    """That were measured: all but the first."""
    seconds: tuple[Line, ...]
    """Means of a step, on the rank that computes longest, since others wait for it; "waiting" is
    what the other lines leave of the last one, the whole step."""
    memory: tuple[tuple[Line, ...], ...]
    """Bytes on a rank of each stage, of what training keeps: weights, gradients, optimizer, in
    memory. If anything is offloaded, also buffers, which that is read to and written from, and what
    lies in files."""

    @property
    def drift(self) -> float:
        """The measured step is longer than planned by this fraction; shorter, if below 0."""
        whole = self.seconds[-1]
        return whole.measured / whole.planned - 1 if self.steps and whole.planned else 0.0

    def __str__(self) -> str:
        if not self.steps:
            return "no step was measured: the first one is not, since it makes things ready"
        lines = [f"{self.steps} steps{'planned':>22} {'measured':>14}"]
        lines += [_row(each, 1e3, "ms") for each in self.seconds]
        for number, stage in enumerate(self.memory):
            lines += [f"stage {number}", *(_row(each, 2.0**-20, "MiB") for each in stage)]
        return "\n".join(lines)


def _row(line: Line, factor: float, unit: str) -> str:
    measured = f"{line.measured * factor:.2f} {unit}"
    share = f"  {line.measured / line.planned - 1:+.0%}" if line.planned else ""
    return f"  {line.name:12}{line.planned * factor:12.2f} {unit:3} {measured:>13}{share}"


class Measured:
    """A rank's own times; report() brings those of all together."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._steps, self._seconds, self._begin = 0, 0.0, 0.0
        self._looked: dict[str, float] = {}  # What window() has seen.

    @property
    def steps(self) -> int:
        """That were measured."""
        return max(0, self._steps - _SKIPPED)

    def window(self) -> dict[str, float]:
        """Returns a step's mean times since this was asked before."""
        now = {**self.clock.seconds, "step": self._seconds, "steps": float(self.steps)}
        steps = max(1.0, now["steps"] - self._looked.get("steps", 0.0))
        since = {key: now[key] - self._looked.get(key, 0.0) for key in now if key != "steps"}
        self._looked = now
        return {key: seconds / steps for key, seconds in since.items()}

    def begin(self) -> None:
        self._begin = time.perf_counter()

    def end(self) -> None:
        """A step is through."""
        self._steps += 1
        if self._steps == _SKIPPED:
            self.clock.reset()
        else:
            self._seconds += time.perf_counter() - self._begin

    def report(
        self, planned: Planned, stage: int, kept: Mapping[str, float], group: Group
    ) -> Report:
        """Called by all ranks; blocks.

        Args:
            stage: this rank's.
            kept: bytes of weights, gradients and optimizer state on it.
        """
        steps = self.steps
        own = {
            term: seconds / max(steps, 1)
            for term, seconds in (*self.clock.seconds.items(), ("step", self._seconds))
        }
        ranks: list[tuple[int, dict[str, float], Mapping[str, float]]] = allgather_object(
            (stage, own, kept), group=group
        )
        times = [each for _, each, _ in ranks]
        memory = [
            _memory(stage, [bytes for at, _, bytes in ranks if at == number])
            for number, stage in enumerate(planned.decisions.stages)
        ]
        return Report(steps, seconds_of(planned, times), tuple(memory))


def seconds_of(planned: Planned, ranks: Sequence[Mapping[str, float]]) -> tuple[Line, ...]:
    terms = planned.decisions.terms
    busiest = max(ranks, key=lambda each: each[COMPUTE])
    waiting = busiest["step"] - sum(busiest[term] for term in TERMS)
    return (
        Line("compute", terms.compute + terms.recompute, busiest[COMPUTE]),
        Line("weights", terms.weights + terms.offload, busiest[WEIGHTS]),
        Line("waiting", terms.bubble + terms.hops, max(0.0, waiting)),
        Line("sync", terms.sync, busiest[SYNC]),
        Line("update", terms.update, busiest[UPDATE]),
        Line("step", planned.step, busiest["step"]),
    )


def _memory(stage: Stage, ranks: list[Mapping[str, float]]) -> tuple[Line, ...]:
    memory = stage.memory
    planned = {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer,
        "buffers": 0.0,
        "offloaded": stage.host,
    }
    return tuple(Line(name, planned[name], max(each[name] for each in ranks)) for name in ranks[0])
