"""WaitWatch: says whom this rank waits for when it does so for long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corro import _native

_LOOKS = 4  # In the time that is long.
_LONGEST_PAUSE = 1.0  # Seconds.


class WaitWatch:
    """A thread that looks at an engine until close()."""

    def __init__(self, engine: _native.Engine, seconds: float, say: Callable[[str], None]) -> None:
        self._engine = engine
        self._seconds = seconds
        self._say = say
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="corro-waits", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def close(self) -> None:
        """Returns when the thread has ended."""
        self._closed.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        pause = min(self._seconds / _LOOKS, _LONGEST_PAUSE)
        due = self._seconds  # Of the wait that goes on.
        while not self._closed.wait(pause):
            wait = self._engine.longest_wait()
            if wait is None or wait[3] < self._seconds:
                due = self._seconds
            elif wait[3] >= due:
                due = wait[3] + self._seconds
                self._say(_line(self._engine.rank, *wait))


def _line(own: int, rank: int, op: str, name: str, seconds: float) -> str:
    what = f"{op} '{name}'" if name else op
    return f"rank {own} waits for rank {rank} in {what} for {seconds:.0f} s"
