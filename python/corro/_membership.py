"""This process as a member of an elastic job: in which epoch it is, and how it comes to the next.

An epoch has an engine of its own. When ranks come or go, all others hear of a new epoch (PREPARE).
If a rank was lost, the operations of their engines fail; if one comes, they go on to the end of a
step. Each member closes its engine and says so (READY). Once all have, the epoch begins (COMMIT):
each makes an engine with the rank and the size that it has there, under a job name that tells the
epoch from all others.

A *joiner* comes in the middle of a job. It has no engine until its first epoch, and waits for that
when its training function is called: what a program does before takes seconds, and costs the others
nothing.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from corro.errors import (
    AbortedError,
    CancelledError,
    InvalidArgumentError,
    RankFailedError,
    RankLostError,
    TimeoutError,
    UnavailableError,
)

if TYPE_CHECKING:
    from corro import _native

_TIMEOUT = "CORRO_ELASTIC_TIMEOUT"
_SECONDS = 600.0


class Place(NamedTuple):
    """What a member is in an epoch."""

    epoch: int
    rank: int
    size: int
    is_last: bool  # All save what they have, and end.


class End(NamedTuple):
    """How an epoch has ended for a member."""

    steps: int  # Of optimizers, that it has applied, in all.
    why: str  # For people.
    lost: int = -1  # The rank whose loss has ended it; -1: none, or nobody knows which.

    @classmethod
    def by(cls, error: BaseException, steps: int = 0) -> End:
        """Ended by an error; a rank that has left while others need it is lost to them, too."""
        lost = error.rank if isinstance(error, RankLostError | UnavailableError) else -1
        return cls(steps, str(error), lost)


class Membership:
    """Externally synchronized."""

    def __init__(self, epochs: _native.Epochs) -> None:
        self.epochs = epochs
        self.place: Place | None = None  # None in the first epoch: the environment says it.

    @property
    def epoch(self) -> int:
        """The epoch that this process is in."""
        return 0 if self.place is None else self.place.epoch

    @property
    def is_last(self) -> bool:
        """Whether all members are to save what they have in that epoch, and to end."""
        return self.place is not None and self.place.is_last

    @property
    def why(self) -> str:
        """Why the newest epoch comes, for people."""
        return self.epochs.why

    def is_over(self) -> bool:
        """Returns whether another epoch comes; never blocks."""
        return self.epochs.prepared > self.epoch

    def is_over_with(self, error: Exception) -> bool:
        """Returns whether the epoch is over for this process once it has this error.

        A rank that was late may come yet, and what ranks did wrong they would do again: that ends
        no epoch. Who says that a rank was late may know already that an epoch comes.
        """
        return ends_epoch(error) or (isinstance(error, TimeoutError) and self.is_over())

    def wait_for_next(self, end: End, deadline: float) -> None:
        """Says that the engine is closed, and waits for the next epoch.

        Args:
            end: how the last epoch has ended here.
            deadline: by the monotonic clock.

        Raises:
            TimeoutError: none has begun in time.
            UnavailableError: the agent is gone, or has ended this member's part in the job.
        """
        try:
            left = max(0.0, deadline - monotonic())
            self.place = Place(*self.epochs.next(end.steps, end.lost, left))
        except TimeoutError as error:
            cause = self.why if self.is_over() else end.why
            raise TimeoutError(
                f"corro.elastic: epoch {self.epoch} has ended ({cause}), and no other one has begun"
                f" within {patience():g} s ({_TIMEOUT})"
            ) from error


def ends_epoch(error: Exception) -> bool:
    """Returns whether the error says that a rank was lost, or that ranks give their epoch up."""
    return isinstance(error, AbortedError | CancelledError | UnavailableError) and not isinstance(
        error, RankFailedError
    )


def patience() -> float:
    """Returns for how many seconds a member waits for an epoch to begin."""
    text = os.environ.get(_TIMEOUT) or str(_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise InvalidArgumentError(f"{_TIMEOUT}={text}: a number of seconds >= 0 is needed")
    return seconds


def is_elastic() -> bool:
    """Returns whether the launcher has started an elastic job."""
    return os.environ.get("CORRO_ELASTIC") == "1"


def is_joiner() -> bool:
    """Returns whether the launcher has started this process in the middle of an elastic job."""
    return is_elastic() and os.environ.get("CORRO_JOINS") == "1"
