"""Step: what a rank does between two changes of the parameters, and the cursor that moves then.

A sampler gives steps one after the other. The rank takes the step's batches, calls backward() for
each, and step() of its optimizer. Then it records the step: only now the sampler's cursor moves. So
the cursor counts what was applied, whatever a loader has fetched ahead. A rank that is lost earlier
leaves the cursor where it was, and the others do the step again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from corro.errors import FailedPreconditionError


class Step:
    """This rank's batches of a step, each with its weight: `for batch, weight in step`.

    Multiply each loss, a mean over its batch, by the weight of the batch. The sum over a rank's
    batches, averaged over ranks, is then the mean over all samples of the step, also where ranks
    have different numbers of samples. Weights are 1 where all ranks have one batch, of one size.

    Externally synchronized.
    """

    def __init__(
        self, batches: Iterable[tuple[Any, float]], samples: int, advance: Callable[[], None]
    ) -> None:
        """`advance`: moves the sampler's cursor behind this step."""
        self.samples = samples  # Of all ranks.
        self._batches = iter(batches)
        self._advance: Callable[[], None] | None = advance

    def __iter__(self) -> Iterator[tuple[Any, float]]:
        return self._batches

    def record(self) -> None:
        """Notes that all ranks have applied the step: directly after optimizer.step().

        Does not communicate.

        Raises:
            FailedPreconditionError: it is recorded already, or this rank has not taken all batches.
        """
        if self._advance is None:
            raise FailedPreconditionError("record(): this step is recorded already")
        if next(self._batches, None) is not None:
            raise FailedPreconditionError(
                "record(): not all batches of this step were taken: call it behind their loop"
            )
        self._advance()
        self._advance = None


def recorded(steps: Iterable[Step]) -> Iterator[Step]:
    """Yields the steps; FailedPreconditionError if one is asked for before the last is recorded."""
    for step in steps:
        yield step
        if step._advance is not None:
            raise FailedPreconditionError(
                "steps(): the last step was not recorded, and its samples would come again: call"
                " step.record() directly after optimizer.step()"
            )
