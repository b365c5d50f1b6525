"""Lets `corro run` ask where this process is when another rank has given up waiting for it.

faulthandler, which is C and runs no Python, writes the stack of the thread that gets the signal
into a memfd; the launcher finds that by its name and sends the signal, as whereabouts.h says.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from contextlib import suppress

SIGNAL = signal.SIGRTMAX - 3

_file: int | None = None  # Open as long as the process: the handler writes to it.


def offer() -> None:
    """Makes the answer possible, once; never raises, and leaves a signal that is in use alone."""
    global _file
    if _file is not None or signal.getsignal(SIGNAL) != signal.SIG_DFL:
        return
    with suppress(OSError, RuntimeError):
        _file = os.memfd_create("corro-stack")
        faulthandler.register(SIGNAL, file=_file, all_threads=False)
