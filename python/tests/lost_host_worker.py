"""One rank of lost_hosts.py: `python lost_host_worker.py SCENARIO`. Prints JSON lines.

The starter says by a line on stdin when a host's cable is cut, and another one ends the rest.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import numpy

import corro
import corro.numpy
from corro import _context


def say(**facts: object) -> None:
    print(json.dumps({"rank": corro.rank(), **facts}), flush=True)


def failure_of(data: numpy.ndarray) -> dict[str, object]:
    try:
        while True:
            corro.numpy.allreduce(data)
    except corro.CorroError as error:
        at = time.monotonic()
        kind = type(error).__name__
        return {"error": kind, "message": str(error), "culprit": error.rank, "at": at}


def rest() -> bool:
    """Waits until the engine has slept for three seconds on end; False if it never does."""
    engine = _context.current().engine
    end = time.monotonic() + 30
    while time.monotonic() < end:
        woken = engine.counter("wakeups")
        time.sleep(3)
        if engine.counter("wakeups") == woken:
            return True
    return False


def until_lost(ranks: int) -> float:
    """Waits until so many ranks are lost; says when. No operation: the engine notices by itself."""
    while _context.current().engine.counter("ranks_lost") < ranks:
        time.sleep(0.01)
    return time.monotonic()


def in_operations() -> None:
    corro.numpy.allreduce(numpy.ones(4))
    say(ready=True)
    say(**failure_of(numpy.ones(100_000)))


def waiting() -> None:
    """The ranks of the host that vanishes never come, and nothing is on its way to them."""
    corro.numpy.allreduce(numpy.ones(4))
    say(ready=True)
    if sys.stdin.readline() == "wait\n":
        sys.stdin.readline()
    say(**failure_of(numpy.ones(4)))


def at_rest() -> None:
    corro.numpy.allreduce(numpy.ones(4))
    say(ready=rest())
    at = until_lost(int(sys.stdin.readline()))
    say(**{**failure_of(numpy.ones(4)), "at": at})


def after_their_owners_end() -> None:
    """The lowest ranks of two hosts are killed; then a host vanishes, or does in that moment."""
    corro.numpy.allreduce(numpy.ones(4))
    say(ready=True)
    if sys.stdin.readline() == "die\n":
        os.kill(os.getpid(), signal.SIGKILL)
    at = until_lost(int(sys.stdin.readline()))
    say(**{**failure_of(numpy.ones(4)), "at": at})


if __name__ == "__main__":
    corro.init()
    globals()[sys.argv[1]]()
