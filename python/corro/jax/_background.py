"""What JAX computes while Python goes on, and the errors that it makes of corro's.

A compiled function returns arrays that do not exist yet. If one of its operations fails, so do they
and all that is computed from them, and who waits for one is told, with an error of JAX's.
"""

from __future__ import annotations

import re
from contextlib import suppress

import jax

from corro.errors import CorroError, make

# What the plug-in writes into an error (call.h): JAX puts words of its own in front of it.
_TOLD = re.compile(r"corro error (\d+): (.*)", re.DOTALL)


class _Background:
    """Thread-safe: it has no state."""

    def cause_of(self, error: Exception) -> CorroError | None:
        if isinstance(error, CorroError) or not isinstance(error, RuntimeError | ValueError):
            return None
        told = _TOLD.search(str(error))
        return told and make(int(told[1]), told[2], -1, "", "", False)

    def finish(self) -> None:
        """A rank that has left is one that the others wait for."""
        for x in jax.live_arrays("cpu"):
            with suppress(Exception):  # Who reads the array is told.
                x.block_until_ready()


BACKGROUND = _Background()
