"""Pipe, which tests and scripts of Horovod import: text or bytes from one thread to another."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T", str, bytes)


class Pipe(Generic[T]):
    """Holds one piece at a time: write() waits until the one before was read. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._piece: T | None = None
        self._closed = False

    def write(self, buf: T) -> None:
        """Hands over a piece; RuntimeError once the pipe is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._piece is None)
            if self._closed:
                raise RuntimeError("Pipe is closed")
            self._piece = buf or None
            self._changed.notify_all()

    def read(self, length: int = -1) -> T | None:
        """Waits for a piece and returns it, or `length` of it; None once the pipe is at its end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._piece is not None)
            piece = self._piece
            if piece is None:
                return None
            end = len(piece) if length < 0 else length
            self._piece = piece[end:] or None
            self._changed.notify_all()
            return piece[:end]

    def flush(self) -> None:
        """There is nothing to wait for."""

    def close(self) -> None:
        """Ends all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
