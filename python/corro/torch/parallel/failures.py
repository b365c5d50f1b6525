"""What fails on one rank ends the step on all of them, and nothing has changed.

A rank that has failed computes no more in this step. But it takes part in all that the step sends
and reduces, as it does without samples, so nobody waits for what does not come. With the loss all
ranks hear whether one has failed, and whether they were given the same number of samples; then each
raises, before the optimizer steps. The next batch may be trained.

Where ranks compute one sample together (tensor/), others would wait for the failed one's part of
that. So there it raises at once, which stops the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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

    def numbers(self, samples: int) -> list[float]:
        """Returns what is summed over all ranks.

        Args:
            samples: of the whole batch, as this rank was given it.
        """
        return [float(self.own is not None), float(samples), float(samples) ** 2]

    def are_in(self, sums: Sequence[float]) -> bool:
        """Returns whether a rank has failed, or was given another number of samples."""
        failed, samples, squares = sums
        return failed > 0 or squares * self._group.size() != samples**2

    def raise_first(self, samples: int) -> None:
        """Raises on every rank; blocks until all have come.

        Raises:
            MismatchError: batches differ.
            UnknownError: another rank has failed; if it was this one, what it raised.
        """
        text = None if self.own is None else one_line(self.own)
        told: list[tuple[str | None, int]] = allgather_object((text, samples), group=self._group)
        counts = dict(zip(self._group.ranks, (count for _, count in told), strict=True))
        for rank, count in counts.items():
            if count != told[0][1]:
                raise MismatchError(
                    f"step: batch: rank {rank} gives {count} samples, rank {self._group.ranks[0]} "
                    f"{told[0][1]}: all ranks give the same batch, or parts of it with sharded=True"
                ) from self.own
        if self.own is not None:
            raise self.own
        failed = next((r, t) for r, (t, _) in zip(self._group.ranks, told, strict=True) if t)
        raise UnknownError(f"step: rank {failed[0]}: {failed[1]}")
