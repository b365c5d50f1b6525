"""Lets `corro run` ask where this process is: when another rank has given up waiting for it, or for
`corro stacks`.

faulthandler, which is C and runs no Python, writes the stack of the thread that gets the signal,
or of all threads, into a memfd; the agent finds that by its name and sends the signal, as
whereabouts.h says.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from contextlib import suppress

ONE_THREAD = signal.SIGRTMAX - 3
ALL_THREADS = signal.SIGRTMAX - 4

_files: dict[int, int] = {}  # By signal; open as long as the process: the handler writes to it.


def offer() -> None:
    """Makes the answers possible, once; never raises, and leaves a signal that is in use alone."""
    _register(ONE_THREAD, "corro-stack")
    _register(ALL_THREADS, "corro-threads")


def _register(number: int, name: str) -> None:
    if number in _files or signal.getsignal(number) != signal.SIG_DFL:
        return
    with suppress(OSError, RuntimeError):
        _files[number] = os.memfd_create(name)
        faulthandler.register(number, file=_files[number], all_threads=number == ALL_THREADS)
