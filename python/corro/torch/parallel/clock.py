"""Where a rank's time goes in a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

COMPUTE, WEIGHTS, SYNC, UPDATE = "compute", "weights", "sync", "update"
TERMS = (COMPUTE, WEIGHTS, SYNC, UPDATE)


class Clock:
    """Counts seconds by what they are for; what is begun inside of something else is not its."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(TERMS, 0.0)
        self._inside: list[str] = []
        self._since = 0.0

    def reset(self) -> None:
        self.seconds = dict.fromkeys(TERMS, 0.0)

    @contextmanager
    def of(self, term: str) -> Iterator[None]:
        self._turn()
        self._inside.append(term)
        try:
            yield
        finally:
            self._turn()
            self._inside.pop()

    def timing(self, term: str, function: Callable[[T], None]) -> Callable[[T], None]:
        """Returns the function, whose time is counted."""

        def timed(given: T) -> None:
            with self.of(term):
                function(given)

        return timed

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._inside:
            self.seconds[self._inside[-1]] += now - self._since
        self._since = now
