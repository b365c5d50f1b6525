"""A described operation, carried out at once, or in the background behind a Handle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, cast

from corro import _arguments, _native
from corro._context import Group

R = TypeVar("R")
Q = TypeVar("Q")
P = ParamSpec("P")


class Handle(Generic[R]):
    """An operation that was started. Dropping it does not cancel the operation."""

    __slots__ = ("_finish", "_result", "_work")

    def __init__(
        self,
        work: _native.Work,
        result: R | None = None,
        finish: Callable[[], R] | None = None,
    ) -> None:
        self._work = work
        self._result = result
        self._finish = finish  # Makes the result, if there is something to do for that.

    def done(self) -> bool:
        """Returns whether wait() would return at once."""
        return self._work.done()

    def wait(self, timeout: float | None = None) -> R:
        """Blocks until the operation is done and returns its result; raises what it failed with."""
        if timeout is not None:
            timeout = _arguments.seconds("timeout", timeout)
        self._work.wait(timeout)
        return self._finish() if self._finish is not None else cast("R", self._result)


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
        """Returns calls of one kind and one group as one unit."""
        return Call(
            calls[0].group,
            [op for call in calls for op in call.ops],
            [call.buffers for call in calls],
            lambda: [call.finish() for call in calls],
            named=calls[0].named,
        )

    def mapped(self, make: Callable[[R], Q]) -> Call[Q]:
        """Returns the same operations, whose result is make(result)."""
        finish = self.finish
        return Call(self.group, self.ops, self.buffers, lambda: make(finish()), named=self.named)

    def run(self) -> R:
        """Carries the operations out on this thread."""
        self.group.native.run(self.ops, self.buffers, self.named)
        return self.finish()

    def start(self) -> Handle[R]:
        """Starts the operations and returns at once."""
        work = self.group.native.submit(self.ops, self.buffers, self.named)
        return Handle(work, finish=self.finish)


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


def present_as(function: Callable[..., Any], name: str, described: Callable[..., Any]) -> None:
    """Gives a function the name that users call it by, and the documentation of its description."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = described.__doc__


def synchronize(handle: Handle[R]) -> R:
    """Blocks until the handle's operation is done and returns its result."""
    return handle.wait()


def poll(handle: Handle[Any]) -> bool:
    """Returns whether synchronize(handle) would return at once."""
    return handle.done()
