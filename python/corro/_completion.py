"""Callbacks for finished works: one Python thread, fed by the engine's completion queue."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from corro.errors import CorroError

if TYPE_CHECKING:
    from corro import _native


class Completions:
    """Thread-safe. The thread starts with the first watch() and ends when the engine is closed."""

    def __init__(self, engine: _native.Engine) -> None:
        self._engine = engine
        self._cookies = itertools.count(1)
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self, work: _native.Work, callback: Callable[[], None]) -> None:
        """Calls callback, which must not raise, on the thread once the work is done."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="corro-completions", daemon=True
                )
                self._thread.start()
            cookie = next(self._cookies)
            self._callbacks[cookie] = callback
        work.notify(cookie)

    def join(self) -> None:
        """Waits for the thread's end; call it after the engine was closed."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                cookie = self._engine.next_completed()
            except CorroError:
                break
            if cookie is not None:
                self._callbacks.pop(cookie)()
        # The engine was closed: what was pending has failed, and its callbacks find that out.
        while self._callbacks:
            self._callbacks.popitem()[1]()
