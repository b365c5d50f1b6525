"""What JAX computes while Python goes on, and the errors that it makes of corro's.

A compiled function returns arrays that do not exist yet. If one of its operations fails, so do they
and all that is computed from them, and who waits for one is told, with an error of JAX's.
"""

from __future__ import annotations

import re
from typing import Any

import jax

from corro import _context
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

    def wait_for(self, values: Any) -> None:
        jax.block_until_ready(values)

    def finish(self) -> None:
        """A rank that has left is one that the others wait for.

        What has failed before may be of an earlier epoch of an elastic job, in which others went
        on without it.
        """
        is_elastic = _context.membership() is not None
        failure: CorroError | None = None
        for x in jax.live_arrays("cpu"):
            try:
                if not (is_elastic and x.is_ready()):
                    x.block_until_ready()
            except Exception as error:  # An array may also be deleted.
                failure = failure or self.cause_of(error)
        if failure is not None:
            raise make(
                failure.code, f"steps that nobody has waited for: {failure}", -1, "", "", False
            )


BACKGROUND = _Background()
