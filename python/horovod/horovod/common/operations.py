"""What the front ends' operations have in common: names, handles, and Horovod's reductions.

Every operation has a name, the user's or one that counts the calls of its kind, and takes its place
by it. Its group knows which names are in flight: one that is there twice is the caller's mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import corro
from horovod.common.exceptions import HorovodInternalError, raised_as_horovods
from horovod.common.handles import Started, handle_of
from horovod.common.process_sets import ProcessSet, member_group
from horovod.common.reduce_op import ReduceOp, corros, known, without_average

if TYPE_CHECKING:
    from corro import Group

Finish = Callable[[Any], Any]


def own_name(kind: str, name: str | None, process_set: ProcessSet) -> str:
    """Returns the operation's own name: the user's, or one that counts those of the set."""
    if name is not None:
        return f"{kind}.{name}"
    return f"{kind}.noname.{next(process_set.counts.setdefault(kind, count(1)))}"


def numbered(name: str, count: int) -> list[str]:
    """Returns the names of a group's operations; ValueError if there are none."""
    if count == 0:
        raise ValueError(f"{name}: no tensors given")
    return [f"{name}.{i}" for i in range(count)]


@dataclass(frozen=True, slots=True)
class _Pending:
    """What was started, under names that are claimed until somebody has waited for it."""

    started: Started
    finish: Finish
    group: Group
    names: list[str]

    def done(self) -> bool:
        return self.started.done()

    def wait(self) -> Any:
        try:
            result = self.started.wait()
        finally:
            self.group.native.release(self.names)
        return self.finish(result)


def start(
    kind: str,
    names: list[str],
    process_set: ProcessSet,
    begin: Callable[[Group], Started],
    finish: Finish = lambda result: result,
) -> int:
    """Starts operations of these names, and returns one handle for them.

    Args:
        kind: what the user has called, for errors.
        names: claimed until somebody has waited; one that is in flight is an AlreadyExistsError.
        process_set: the ranks that take part; ValueError if this rank does not.
        begin: starts them in the set's group.
        finish: makes what synchronize() returns of the result.
    """
    group = member_group(process_set, kind)
    group.native.claim(names)
    try:
        with raised_as_horovods():
            started = begin(group)
    except BaseException:
        group.native.release(names)
        raise
    return handle_of(_Pending(started, finish, group, names))


@contextmanager
def running(kind: str, names: list[str], process_set: ProcessSet) -> Iterator[Group]:
    """Operations of these names run within it, in the set's group; otherwise as start()."""
    group = member_group(process_set, kind)
    group.native.claim(names)
    try:
        with raised_as_horovods():
            yield group
    finally:
        group.native.release(names)


def reduction_of_reducescatter(op: object) -> ReduceOp | corro.ReduceOp:
    """Returns the reduction that is asked for; HorovodInternalError if it is none that adds up."""
    reduction = known(op)
    if corros(reduction) not in (corro.Average, corro.Sum):
        raise HorovodInternalError("Reducescatter: only hvd.Average and hvd.Sum are supported")
    return reduction


class Reduction:
    """What is done to each element, as the verbs of corro take it."""

    def __init__(
        self,
        op: ReduceOp | corro.ReduceOp,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
    ) -> None:
        self.op, divides = without_average(op)
        self.prescale = prescale
        self.postscale = postscale
        if divides:
            self.postscale = postscale / len(process_set.ranks or [0])

    @property
    def arguments(self) -> dict[str, Any]:
        """As keywords."""
        return {
            "op": self.op,
            "prescale_factor": self.prescale,
            "postscale_factor": self.postscale,
        }
