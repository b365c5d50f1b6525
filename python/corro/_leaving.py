"""SIGTERM asks a rank of an elastic job to leave: whoever sends it kills those that stay too long.

The rank tells the launcher, and goes on until the end of its step. There the next epoch begins: for
the others without this rank, which is killed; or for all ranks as the job's last one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from corro import _context
from corro.errors import CorroError

LEFT = 75
"""The status of ranks that have saved what they have: to be started again, as EX_TEMPFAIL says."""


class Leaving:
    """Whether this rank was asked to."""

    is_asked = False


@contextmanager
def leaving_at_sigterm() -> Iterator[Leaving]:
    """Handles SIGTERM so, in an elastic job, while the block runs in the main thread.

    A handler of the program's own stays.
    """
    leaving, member, pid = Leaving(), _context.membership(), os.getpid()
    if (
        member is None
        or threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield leaving
        return

    def ask(number: int, _: object) -> None:
        try:
            if os.getpid() == pid:  # Not a child of this rank, which has its handlers.
                member.epochs.leave()
                leaving.is_asked = True
                return
        except CorroError:
            pass  # Nobody is there to go on without this rank.
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    signal.signal(signal.SIGTERM, ask)
    try:
        yield leaving
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
