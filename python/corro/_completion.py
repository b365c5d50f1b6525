"""Callbacks for finished works, on Python threads that the engine's completion queue feeds.

A callback is a user's code: it may start a collective and wait for it, or wait for what another
callback does. So the thread that runs a callback must not be the only one that takes cookies from
the queue.

One thread at a time holds the *queue*: it waits for a cookie, makes sure that another thread waits
to hold the queue next, waits for the *turn*, and only then lets go of the queue. So callbacks begin
in the order of the queue. It holds the turn while its callback runs. So callbacks run one at a
time, until one waits:

- A callback that waits for a work, or asks for the future of an unfinished work, gives up its turn
  (`hand_on`): the next callback begins at once.
- For what corro does not see, such as a wait for a future that was made elsewhere, the next
  callback waits _PATIENCE for the turn, and then begins without.

A thread whose callback is over ends if enough others wait. When the engine is closed, the queue is
at its end and all pending works have failed: the threads run the callbacks that are left, which
find that out, and end.

A forked child has the objects of its parent's threads, but not the threads, and locks that nobody
releases. There all of this begins anew, without the parent's callbacks; the engine fails every
work, so a callback runs at once and finds that out.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from corro.errors import CorroError

if TYPE_CHECKING:
    from corro import _native

_MOST_IDLE = 2  # Threads: the one that holds the queue, and the next.
_PATIENCE = 0.1  # Seconds.


class Completions:
    """Thread-safe. The first watch() starts a thread; all end when the engine is closed."""

    def __init__(self, engine: _native.Engine) -> None:
        self._engine = engine
        self._abandoned = False  # In a forked child.
        self._begin()

    def _begin(self) -> None:
        self._cookies = itertools.count(1)
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()  # With the lock; so is
        self._idle = 0  # those of them that are not in a callback.
        self._queue = threading.Lock()
        self._turn = threading.Lock()
        self._turn_of: int | None = None  # The thread that holds the turn.

    def watch(self, work: _native.Work, callback: Callable[[], None]) -> None:
        """Calls callback, which must not raise, on one of the threads once the work is done."""
        if self._abandoned:
            callback()
            return
        with self._lock:
            if not self._threads:
                self._start_thread()
            cookie = next(self._cookies)
            self._callbacks[cookie] = callback
        work.notify(cookie)

    def abandon_in_child(self) -> None:
        """In a forked child: forgets the parent's threads and callbacks."""
        self._abandoned = True
        self._begin()

    def hand_on(self) -> None:
        """Called before this thread waits: if it runs a callback, the next one may begin."""
        if self._turn_of == threading.get_ident():
            self._turn_of = None
            self._turn.release()

    def join(self) -> None:
        """Waits for the end of the threads but this one; call it after the engine was closed."""
        while True:
            with self._lock:
                others = self._threads - {threading.current_thread()}
            if not others:
                return
            for thread in others:
                thread.join()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="corro-completions", daemon=True)
        self._idle += 1
        self._threads.add(thread)
        thread.start()

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            callback()
            self.hand_on()
            with self._lock:
                if self._idle == _MOST_IDLE:
                    break
                self._idle += 1
        with self._lock:
            self._threads.discard(threading.current_thread())

    def _next(self) -> Callable[[], None] | None:
        """Returns the next callback, with the turn; None if the engine was closed."""
        with self._queue:
            cookie = self._wait_for_cookie()
            with self._lock:
                self._idle -= 1
                if not self._callbacks:
                    return None
                if self._idle == 0:
                    self._start_thread()
            if self._turn.acquire(timeout=_PATIENCE):
                self._turn_of = threading.get_ident()
            return self._callbacks.popitem()[1] if cookie is None else self._callbacks.pop(cookie)

    def _wait_for_cookie(self) -> int | None:
        """Returns the next cookie; None once the engine is closed."""
        cookie = None
        with suppress(CorroError):
            while cookie is None:
                cookie = self._engine.next_completed()
        return cookie
