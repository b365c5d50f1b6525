"""Horovod's timeline: corro's, and the variables that ask for it."""

from __future__ import annotations

import os

import corro
from horovod.common.settings import is_set, logger

VARIABLE = "HOROVOD_TIMELINE"
MARK_CYCLES = "HOROVOD_TIMELINE_MARK_CYCLES"
DYNAMIC = "DYNAMIC"

_may_start = False  # init() has found the variable.


def start_if_asked() -> None:
    """Begins the timeline that the environment asks for; init() calls it."""
    global _may_start
    path = os.environ.get(VARIABLE, "")
    _may_start = bool(path)
    if path and path != DYNAMIC:
        try:
            start(path, is_set(os.environ, MARK_CYCLES))
        except corro.CorroError as error:  # As in Horovod: training is worth more than its picture.
            logger().warning("%s=%s: there is no timeline: %s", VARIABLE, path, error)


def start(path: str, mark_cycles: bool) -> None:
    """Begins a timeline instead of one that is there."""
    if not _may_start:
        raise ValueError("Set HOROVOD_TIMELINE=DYNAMIC before init() to start a timeline later.")
    corro.stop_timeline()
    corro.start_timeline(path, mark_cycles=mark_cycles)


def stop() -> None:
    """Ends the timeline, if there is one."""
    corro.stop_timeline()
