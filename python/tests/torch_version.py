"""Which torch runs the tests: from 2.15 on a back end in Python can do more."""

from __future__ import annotations

import pytest
import torch


def at_least(major: int, minor: int) -> bool:
    """Returns whether this torch is that version, or a later one."""
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) >= (
        major,
        minor,
    )


NEW = at_least(2, 15)
needs_new = pytest.mark.skipif(not NEW, reason=f"needs torch 2.15, this is {torch.__version__}")
