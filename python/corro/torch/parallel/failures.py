"""What fails on one rank ends the step on all of them, and nothing has changed.

A rank that has failed computes no more in this step. But it takes part in all that the step sends
and reduces, as it does without samples, so nobody waits for what does not come. With the loss all
ranks hear whether one has failed, and whether they were given the same batch: as many samples, and
in a plan's first step the same values; then each raises, before the optimizer steps. The next batch
may be trained.

Where ranks compute one sample together (tensor/), others would wait for the failed one's part of
that. So there it raises at once, which stops the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from corro._context import Group
from corro._objects import allgather_object
from corro.errors import (
    CorroError,
    FailedPreconditionError,
    InvalidArgumentError,
    MismatchError,
    UnknownError,
)
from corro.torch.recorder.run import one_line

_DIGESTS = 1 << 20
"""Of a batch's values: sums of their squares over all ranks are whole in 53 bits."""


class Given(NamedTuple):
    """A whole batch, as one rank was given it."""

    samples: int = 0
    digest: int = 0  # Of its values; 0 where they are not compared.


class Failures:
    """Of one rank's steps. Used by one thread at a time."""

    def __init__(self, group: Group, *, at_once: bool) -> None:
        self._group = group
        self._at_once = at_once
        self.own: Exception | None = None

    def begin(self) -> None:
        """A step begins."""
        self.own = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """What is raised inside is kept until all ranks hear of it; not so a lost connection."""
        try:
            yield
        except (InvalidArgumentError, FailedPreconditionError) as error:
            self.own = self.own or error
        except CorroError:
            raise
        except Exception as error:
            self.own = self.own or error
        if self._at_once and self.own is not None:
            raise self.own

    def numbers(self, given: Given) -> list[float]:
        """Returns what is summed over all ranks."""
        squares = [part for each in _numbers(given) for part in (each, each**2)]
        return [float(self.own is not None), *squares]

    def are_in(self, sums: Sequence[float]) -> bool:
        """Returns whether a rank has failed, or was given another batch."""
        failed, *pairs = sums
        alike = zip(pairs[::2], pairs[1::2], strict=True)
        return failed > 0 or any(squares * self._group.size() != sum_**2 for sum_, squares in alike)

    def raise_first(self, given: Given) -> None:
        """Raises on every rank; blocks until all have come.

        Raises:
            MismatchError: batches differ.
            UnknownError: another rank has failed; if it was this one, what it raised.
        """
        text = None if self.own is None else one_line(self.own)
        told: list[tuple[str | None, Given]] = allgather_object((text, given), group=self._group)
        first, others = told[0][1], self._group.ranks
        for rank, (_, each) in zip(others, told, strict=True):
            what = None
            if each.samples != first.samples:
                what = f"{each.samples} samples, rank {others[0]} {first.samples}"
            elif _numbers(each) != _numbers(first):
                what = f"other values than rank {others[0]}"
            if what is not None:
                raise MismatchError(
                    f"step: batch: rank {rank} gives {what}: all ranks give the same batch, or "
                    "parts of it with sharded=True"
                ) from self.own
        if self.own is not None:
            raise self.own
        failed = next((r, t) for r, (t, _) in zip(self._group.ranks, told, strict=True) if t)
        raise UnknownError(f"step: rank {failed[0]}: {failed[1]}")


def _numbers(given: Given) -> list[float]:
    return [float(given.samples), float(given.digest % _DIGESTS)]
