"""A described operation, carried out at once, or in the background behind a Handle."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Generic, ParamSpec, TypeVar

from corro import _native
from corro._context import Group

R = TypeVar("R")
P = ParamSpec("P")


class Handle(Generic[R]):
    """An operation that was started. Dropping it does not cancel the operation."""

    __slots__ = ("_finish", "_work")

    def __init__(self, work: _native.Work, finish: Callable[[], R]) -> None:
        self._work = work
        self._finish = finish

    def done(self) -> bool:
        """Returns whether wait() would return at once."""
        return forget_if_done(self._work)

    def wait(self, timeout: float | None = None) -> R:
        """Blocks until the operation is done and returns its result; raises what it failed with."""
        wait_for(self._work, timeout)
        return self._finish()


class Call(Generic[R]):
    """One or more operations of a group, not started yet, and what makes their result.

    Named ones take their place by their names, others by the order of the calls.
    """

    __slots__ = ("buffers", "finish", "group", "named", "ops")

    def __init__(
        self,
        group: Group,
        ops: list[_native.Op],
        buffers: object,
        finish: Callable[[], R],
        *,
        named: bool = False,
    ) -> None:
        self.group = group
        self.named = named
        self.ops = ops
        self.buffers = buffers
        self.finish = finish

    @staticmethod
    def joined(calls: Sequence[Call[R]]) -> Call[list[R]]:
        """Returns calls of one group as one unit."""
        return Call(
            calls[0].group,
            [op for call in calls for op in call.ops],
            [call.buffers for call in calls],
            lambda: [call.finish() for call in calls],
            named=calls[0].named,
        )

    def run(self) -> R:
        """Carries the operations out on this thread."""
        self.group.native.run(self.ops, self.named)
        return self.finish()

    def start(self) -> Handle[R]:
        """Starts the operations and returns at once."""
        native = self.group.native
        work = native.submit(self.ops, self.named)
        keep_until_done(work, self.buffers)
        return Handle(work, self.finish)


# Works that a start asks whether they are done: more than it adds, so that none pile up.
_LOOKS = 4

# Buffers of works in flight: the engine uses them even if the caller has dropped all handles.
_in_flight: dict[_native.Work, object] = {}
_in_flight_lock = threading.RLock()  # A finalizer may start a work at any place.


def keep_until_done(work: _native.Work, buffers: object) -> None:
    """Keeps buffers alive until the work is done; forgets those of works that are. Thread-safe."""
    with _in_flight_lock:
        _in_flight[work] = buffers
        oldest = list(islice(_in_flight, _LOOKS))
        for other in oldest:  # The next start looks at others.
            _in_flight[other] = _in_flight.pop(other)
    for other in oldest:
        forget_if_done(other)


def forget_if_done(work: _native.Work) -> bool:
    """Lets go of the work's buffers if it is done, and returns whether it is. Thread-safe."""
    if not work.done():
        return False
    with _in_flight_lock:
        buffers = _in_flight.pop(work, None)
    del buffers  # Only now: what their end calls may start other works.
    return True


def wait_for(work: _native.Work, timeout: float | None = None) -> None:
    """Blocks until the work is done and lets go of its buffers; raises what it failed with."""
    try:
        work.wait(timeout)
    finally:
        forget_if_done(work)


def _name_as_called(build: Callable[..., Any]) -> None:
    """Makes Python's errors about arguments say allreduce(), not Verbs.allreduce()."""
    function = getattr(build, "__func__", build)
    function.__qualname__ = function.__name__


def running(build: Callable[P, Call[R]]) -> Callable[P, R]:
    """Makes the blocking function of a description."""
    _name_as_called(build)

    @functools.wraps(build)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return build(*args, **kwargs).run()

    return run


def starting(build: Callable[P, Call[R]]) -> Callable[P, Handle[R]]:
    """Makes the function of a description that returns a Handle at once."""

    @functools.wraps(build)
    def start(*args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        return build(*args, **kwargs).start()

    in_place = build.__name__.endswith("_")
    start.__name__ = f"{build.__name__.rstrip('_')}_async{'_' if in_place else ''}"
    start.__qualname__ = start.__name__
    return start


def synchronize(handle: Handle[R]) -> R:
    """Blocks until the handle's operation is done and returns its result."""
    return handle.wait()


def poll(handle: Handle[Any]) -> bool:
    """Returns whether synchronize(handle) would return at once."""
    return handle.done()
