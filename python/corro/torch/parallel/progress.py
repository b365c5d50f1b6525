"""How far a training is, as a line on stderr that is drawn again and again.

    epoch 2/5  [########------------]  640/1600  loss 3.214  812 samples/s  0:12 left

On a terminal it is drawn ten times a second, below `corro run` once, since its output goes through
the launcher, which keeps bars on its own terminal. Elsewhere there is a line at an epoch's end.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

_WIDTH = 20
_CLEAR = " " * 4  # What an earlier, longer line has left over.


def bar_interval(stream: TextIO) -> float | None:
    """Returns how often a bar is drawn there, in seconds; None: not at all."""
    if stream.isatty():
        return 0.1
    return 1.0 if "CORRO_RANK" in os.environ else None


@dataclass(slots=True)
class Progress:
    """The line of one epoch. Externally synchronized."""

    title: str
    total: int | None
    """What is done at the end; None: nobody knows before."""
    interval: float | None
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    _begun: float = field(default_factory=time.monotonic)
    _first: int | None = None  # Where this process has begun.
    _samples: int = 0
    _drawn: float = 0.0
    _longest: int = 0

    def advance(self, place: int, step: int, samples: int, loss: float) -> None:
        """A step was made, from `place - step` to `place`, of so many samples."""
        if self._first is None:
            self._first = place - step
        self._samples += samples
        now = time.monotonic()
        if self.interval is not None and now - self._drawn >= self.interval:
            self._drawn = now
            self._write("\r" + self._padded(self.line(place, loss, now)))

    def end(self, place: int, loss: float, validation: float | None) -> None:
        """The epoch is over."""
        line = self.line(place, loss, time.monotonic())
        if validation is not None:
            line += f"  validation {validation:.4g}"
        start = "" if self.interval is None else "\r"
        self._write(start + self._padded(line) + "\n")

    def line(self, place: int, loss: float, now: float) -> str:
        """Returns the line."""
        parts = [self.title]
        if self.total:
            done = min(_WIDTH, _WIDTH * place // self.total)
            parts += [f"[{'#' * done:-<{_WIDTH}}]", f"{place}/{self.total}"]
        else:
            parts.append(str(place))
        took = max(now - self._begun, 1e-9)
        parts += [f"loss {loss:.4g}", f"{self._samples / took:.3g} samples/s"]
        made = place - (self._first or 0)
        if self.total and made and place < self.total:
            parts.append(f"{_clock(took / made * (self.total - place))} left")
        return "  ".join(parts)

    def _padded(self, line: str) -> str:
        self._longest = max(self._longest, len(line))
        return line.ljust(self._longest)

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
