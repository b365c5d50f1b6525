"""Which of corro's errors TensorFlow has made one of its own of."""

from __future__ import annotations

from corro.errors import CorroError, make

_PAYLOAD = b"corro"  # What the plug-in's status.h calls it: "CODE RANK TEXT".
_of_functions: list[CorroError] = []  # The last one: TensorFlow keeps its text alone.


def remember(error: CorroError) -> None:
    """Has cause_of() find an error that a Python function raises while a graph runs."""
    _of_functions[:] = [error]


def cause_of(error: BaseException) -> CorroError | None:
    """Returns corro's error, if one of the ops has failed because of it; else None.

    A session makes another error of what its ops raise, which is that one's context.

    Args:
        error: one of tf.errors, or any other.
    """
    one: BaseException | None = error
    while one is not None:
        told = getattr(one, "experimental_payloads", {}).get(_PAYLOAD)
        if told is not None:
            code, rank, text = told.decode(errors="replace").split(" ", 2)
            return make(int(code), text, int(rank), "", "", False)
        for remembered in _of_functions:
            if str(remembered) in str(getattr(one, "message", "")):
                return remembered
        one = one.__context__
    return None
