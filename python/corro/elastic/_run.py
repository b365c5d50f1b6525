"""run(): calls a training function until it returns, in as many epochs as it takes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from corro import _context
from corro._leaving import LEFT, Leaving, leaving_at_sigterm
from corro._membership import End, ends_epoch
from corro.elastic._state import State
from corro.errors import CorroError, InvalidArgumentError

R = TypeVar("R")
P = ParamSpec("P")
S = TypeVar("S", bound=State)

_DONE = "corro.elastic.done"  # Of the barrier at the end.


class Course(Protocol):
    """What is done around a training function: corro's way, or another library's."""

    def sync(self) -> None:
        """Makes all ranks alike, before each call of the function."""

    def cause(self, error: Exception, /) -> Exception | None:
        """Returns how the epoch has ended, if the function failed because of that; else None."""

    def recover(self, error: Exception, /) -> None:
        """Puts this rank's state right after that, without communicating."""

    def leave(self) -> None:
        """The job ends here: saves the state, in which all ranks are after the same step."""

    def steps(self) -> int:
        """Returns how far this rank's state is: mostly, the steps that it has applied."""

    def held(self) -> Sequence[object]:
        """Returns what the state has: the program can reach that."""

    def enter(self, is_first: bool, /) -> None:
        """An epoch has begun in the middle of the job: this rank's first, or its next one."""


def run(function: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Makes a training function go on when ranks come or go: a decorator.

    The function's first argument is a State, with which all ranks begin alike. When the job's
    members change, a call of the function ends with an error. Then this process joins the next
    epoch, in which it may have another rank; reset callbacks are called, the state is made alike on
    all ranks again, and the function is called anew with it. run() returns once the function has
    returned on all ranks.

    What the user does wrong, and what ends the whole job, is raised as it is.

    In an elastic job SIGTERM asks this rank to leave at the end of a step, unless the program has a
    handler of its own. If the others cannot go on without it, all ranks leave: what has saved the
    state before saves it once more, and SystemExit is raised with status 75.
    """

    @functools.wraps(function)
    def train(state: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not isinstance(state, State):
            raise InvalidArgumentError(
                f"corro.elastic.run: the function's first argument has to be a State, not a "
                f"{type(state).__name__}"
            )
        return keep_running(lambda: function(state, *args, **kwargs), _Corros(state))

    return train


class _Corros:
    """A course with corro's own state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def sync(self) -> None:
        self._state.sync()

    def cause(self, error: Exception) -> CorroError | None:
        cause = _context.cause_of(error)
        return cause if cause is not None and is_over_with(cause) else None

    def recover(self, _: Exception) -> None:
        self._state.restore()

    def leave(self) -> None:
        self._state._leave()

    def steps(self) -> int:
        return self._state._applied()

    def held(self) -> Sequence[object]:
        return tuple(vars(self._state).values())

    def enter(self, is_first: bool) -> None:
        self._state._enter(is_first)


def is_over_with(error: CorroError) -> bool:
    """Returns whether the epoch of this process ends with the error; in an elastic job alone."""
    member = _context.membership()
    if member is not None:
        return member.is_over_with(error)
    if ends_epoch(error) and hasattr(error, "add_note"):  # Since Python 3.11.
        error.add_note("The job is not elastic: `corro run --min-np N` would let the others go on.")
    return False


def keep_running(attempt: Callable[[], R], course: Course) -> R:
    """Returns what the attempt returns in an epoch in which all ranks' attempts return."""
    _context.arrive()
    with leaving_at_sigterm() as leaving:
        return _in_epochs(attempt, course, leaving)


def _in_epochs(attempt: Callable[[], R], course: Course, leaving: Leaving) -> R:
    is_first = True
    while True:
        try:
            if not is_first or _context.epoch() > 0:
                course.enter(is_first)
            course.sync()
            if _context.is_last_epoch():
                course.leave()
                raise SystemExit(LEFT)
            result = attempt()
            _wait_for_all()
            return result
        except Exception as error:
            cause = course.cause(error)
            # Processes of a DataLoader may have got the signal, too, and have ended.
            if cause is None and not leaving.is_asked:
                raise
            end = End.by(cause or error)
            course.recover(error)
        # Behind the handler: it held the frames that have failed, and what they hold.
        member = _context.membership()
        assert member is not None
        _context.move_on(member, end._replace(steps=course.steps()), held=course.held())
        is_first = False


def _wait_for_all() -> None:
    """Blocks until the attempt has returned on all ranks of an elastic job.

    A rank that left earlier would be missed by those who have to do the last step again. It may
    take as long as it takes: a rank that is lost ends it.
    """
    if _context.membership() is not None:
        _context.barrier(timeout=math.inf, name=_DONE)
