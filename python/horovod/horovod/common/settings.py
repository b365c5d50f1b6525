"""What HOROVOD_* variables change in corro. docs/migrating-from-horovod.md has the table."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import corro

FUSION_THRESHOLD = "HOROVOD_FUSION_THRESHOLD"
GLOO_TIMEOUT = "HOROVOD_GLOO_TIMEOUT_SECONDS"
LOG_HIDE_TIME = "HOROVOD_LOG_HIDE_TIME"
LOG_LEVEL = "HOROVOD_LOG_LEVEL"
STALL_CHECK_DISABLE = "HOROVOD_STALL_CHECK_DISABLE"
STALL_CHECK_TIME = "HOROVOD_STALL_CHECK_TIME_SECONDS"
STALL_SHUTDOWN_TIME = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
START_TIMEOUT = "HOROVOD_START_TIMEOUT"

STALL_CHECK_SECONDS = 60  # As in Horovod.
JOIN_SECONDS = 60
OPERATION_SECONDS = 1800  # Horovod has no end; torch.distributed has this one.
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def is_set(environment: Mapping[str, str], variable: str) -> bool:
    """Returns whether a variable is a number above 0, as Horovod reads switches."""
    value = environment.get(variable, "").strip()
    return value.isdigit() and int(value) > 0


def number(environment: Mapping[str, str], variable: str) -> float | None:
    """Returns the variable's value, None if it is not set; ValueError if it is below 0 or none."""
    text = environment.get(variable, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < math.inf:
        raise ValueError(f"{variable}={text}: a number of at least 0 is needed")
    return value


def stall_warning(environment: Mapping[str, str]) -> float | None:
    """Returns after how many seconds a wait is told; 0: never; None: nobody has said."""
    if is_set(environment, STALL_CHECK_DISABLE):
        return 0
    return number(environment, STALL_CHECK_TIME)


def deadlines(environment: Mapping[str, str]) -> dict[str, float | None]:
    """Returns the deadlines that corro.init() takes."""
    limit = number(environment, STALL_SHUTDOWN_TIME)
    if is_set(environment, STALL_CHECK_DISABLE):
        limit = None
    joins = number(environment, START_TIMEOUT) or number(environment, GLOO_TIMEOUT)
    if limit is None and "CORRO_TIMEOUT" not in environment:
        limit = OPERATION_SECONDS
    if limit is not None and not joins:
        joins = JOIN_SECONDS
    return {"timeout": math.inf if limit == 0 else limit, "join_timeout": joins or None}


def bucket_bytes(environment: Mapping[str, str]) -> int | None:
    """Returns how large buckets of gradients are; None: nobody has said."""
    value = number(environment, FUSION_THRESHOLD)
    return None if value is None else int(value)


@contextmanager
def fusion_of_the_engine() -> Iterator[None]:
    """Within it corro.init() finds Horovod's bound for operations that travel together."""
    value = bucket_bytes(os.environ)
    own = "CORRO_FUSION_BYTES"
    if value is None or own in os.environ:
        yield
        return
    os.environ[own] = str(value)
    try:
        yield
    finally:
        del os.environ[own]


def watch_stalls() -> None:
    """Says who is waited for. `corro run` does that for its ranks."""
    seconds = stall_warning(os.environ)
    seconds = STALL_CHECK_SECONDS if seconds is None else seconds
    if seconds > 0 and corro.size() > 1 and "CORRO_AGENT" not in os.environ:
        corro.watch_waits(seconds, logger().warning)


def logger() -> logging.Logger:
    """Returns the logger "horovod", as HOROVOD_LOG_LEVEL and HOROVOD_LOG_HIDE_TIME want it."""
    log = logging.getLogger("horovod")
    level = os.environ.get(LOG_LEVEL, "WARNING").strip().upper()
    log.setLevel(_LEVELS.get(level, logging.WARNING))
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        time = "" if is_set(os.environ, LOG_HIDE_TIME) else "%(asctime)s "
        handler.setFormatter(logging.Formatter(time + "horovod: %(levelname)s: %(message)s"))
        log.addHandler(handler)
    return log
