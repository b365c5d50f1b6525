"""Horovod's elastic training: its states, whose course corro.elastic runs.

A state is copied at each commit(). When ranks come or go, every rank goes back to its last commit,
unless it left in commit() itself, and then all take rank 0's state.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

from corro import _context
from corro.elastic._run import is_over_with, keep_running
from corro.errors import CorroError
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt


class HostUpdateResult:
    """What became of the hosts; the sum of what did."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class State:
    """What a training function goes on with when ranks come or go.

    Its classes have save(), restore() and sync(); reset() if they need it.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        """`bcast_object` returns rank 0's object on all ranks."""
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks: list[Callable[[], object]] = []
        self._updates: list[int] = []  # Of hosts, that check_host_updates() has not told.
        self._commits = 0

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], object]]) -> None:
        """Has these called when ranks have come or gone, before sync()."""
        self._reset_callbacks += callbacks

    def on_reset(self) -> None:
        """Ranks have come or gone, and this one is in the new world."""
        self._updates.clear()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Notes that hosts have come or gone: the next commit() is interrupted."""
        del timestamp  # They come in order.
        self._updates.append(update_res)

    def commit(self) -> None:
        """Saves the state, and lets the function be interrupted if ranks come or go."""
        self.save()
        self._commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt if ranks come or go; `run` handles it."""
        member = _context.membership()
        if self._updates or (member is not None and member.is_over()):
            removed = all(update == HostUpdateResult.removed for update in self._updates)
            raise HostsUpdatedInterrupt(skip_sync=bool(self._updates) and removed)

    def save(self) -> None:
        """Copies the state, for restore()."""
        raise NotImplementedError

    def restore(self) -> None:
        """Makes the state what it was at the last save()."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes all ranks' state rank 0's, and saves it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Puts right what depends on the ranks that there are."""

    def held(self) -> Sequence[object]:
        """Returns what is in the state."""
        return tuple(vars(self).values())


class ObjectState(State):
    """A state of plain attributes: `ObjectState(hvd.broadcast_object, hvd.rank, epoch=0)`."""

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object, get_rank)
        vars(self).update(kwargs)
        self._names = tuple(kwargs)
        self._saved: dict[str, Any] = {}
        ObjectState.save(self)

    def save(self) -> None:
        self._saved = copy.deepcopy(self._values())

    def restore(self) -> None:
        vars(self).update(copy.deepcopy(self._saved))

    def sync(self) -> None:
        if self._names:
            vars(self).update(self._bcast_object(self._values()))
        ObjectState.save(self)

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}


class _Horovods:
    """A course with Horovod's own state."""

    def __init__(self, state: State, reset: Callable[[], object]) -> None:
        self._state = state
        self._reset = reset
        self._skips_sync = False

    def sync(self) -> None:
        # Ranks may have been interrupted by different things: all skip it, or none does.
        told = _context.exchange(_context.world(), [self._skips_sync, self._state._commits])
        if not all(skips for skips, _ in told):
            self._state.sync()
            self._state._commits = told[0][1]  # All have the state of rank 0.

    def cause(self, error: Exception) -> Exception | None:
        if isinstance(error, HostsUpdatedInterrupt):
            return None if _context.membership() is None else error
        # corro's error, of which this one was made.
        cause = error.__context__ if isinstance(error, HorovodInternalError) else error
        return cause if isinstance(cause, CorroError) and is_over_with(cause) else None

    def recover(self, error: Exception) -> None:
        self._skips_sync = isinstance(error, HostsUpdatedInterrupt) and error.skip_sync
        if not isinstance(error, HostsUpdatedInterrupt):
            self._state.restore()

    def leave(self) -> None:
        pass  # What Horovod's scripts save is their own.

    def steps(self) -> int:
        return self._state._commits

    def held(self) -> Sequence[object]:
        return self._state.held()

    def enter(self, is_first: bool) -> None:
        if not is_first:
            self._reset()
            self._state.on_reset()


def run_fn(func: Callable[..., Any], reset: Callable[[], object]) -> Callable[..., Any]:
    """Makes a function of a state go on when ranks come or go.

    `reset` is called in the new world, before the state hears of it.
    """

    @functools.wraps(func)
    def train(state: State, *args: Any, **kwargs: Any) -> Any:
        return keep_running(lambda: func(state, *args, **kwargs), _Horovods(state, reset))

    return train
