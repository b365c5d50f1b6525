"""One rank of an elastic job: `python WORKER.py SCENARIO FOLDER STEPS`, whatever it trains with.

What it does is in FOLDER, one file a process, as lines of JSON. WORKER.py is elastic_worker.py,
which trains with numpy, or elastic_torch_worker.py.

KILLS says which ranks of the first epoch kill themselves, in which step, and where; SIGNAL by what,
or EXIT, which is an end that looks good.
In the step GATE ranks wait until another epoch comes, since a rank joins; which it does not before.
COMING says for how many that join they wait there first.
In the step BUSY they communicate, until what the scenario says.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corro
from corro import _context

STEPS = int(sys.argv[3])
FIRST = int(os.environ["CORRO_RANK"])  # In the first epoch: whom KILLS is about.
KILLS: dict[str, list[Any]] = json.loads(os.environ.get("KILLS", "{}"))
GATE = int(os.environ.get("GATE", "-1"))
COMING = int(os.environ.get("COMING", "0"))
BUSY = int(os.environ.get("BUSY", "-1"))
JOINS = os.environ.get("CORRO_JOINS") == "1"
SIGNAL = os.environ.get("SIGNAL", "SIGKILL")  # HANG: it does nothing any more. EXIT.
FILE = Path(sys.argv[2]) / f"{FIRST}-{os.getpid()}.jsonl"


def say(**facts: object) -> None:
    with FILE.open("a") as file:
        file.write(json.dumps(facts) + "\n")


def where() -> dict[str, int]:
    return {"epoch": _context.epoch(), "rank": corro.rank(), "size": corro.size()}


def wait_at_gate(step: int) -> None:
    mark = FILE.parent.with_name("gate")
    if JOINS or step != GATE:
        return
    corro.barrier()  # None is at the end of the step before, where it would leave.
    while len(joiners()) < COMING:
        time.sleep(0.01)
    mark.touch()
    die_at(step, "gate")
    while not (member := _context.membership()) or not member.is_over():
        time.sleep(0.01)


def wait_for_gate() -> None:
    while GATE >= 0 and not FILE.parent.with_name("gate").exists():
        time.sleep(0.01)


def joiners() -> list[int]:
    """The processes that were started to join."""
    said = (path for path in FILE.parent.iterdir() if '"joins"' in path.read_text())
    return [int(path.stem.partition("-")[2]) for path in said]


def wait_for_failure() -> None:
    """Waits until one that was to join has ended."""
    while all(Path(f"/proc/{pid}").exists() for pid in joiners()):
        time.sleep(0.01)


def die_at(step: int, place: str) -> None:
    if not JOINS and KILLS.get(str(FIRST)) == [step, place]:
        while SIGNAL == "HANG":
            time.sleep(1)
        if SIGNAL == "EXIT":
            sys.exit(0)
        os.kill(os.getpid(), signal.Signals[SIGNAL])


def renew() -> None:
    """A reset callback."""
    say(reset=True, **where())
    die_at(-1, "reset")


def run(*scenarios: Callable[[], None]) -> None:
    """Carries out the one of them that the command names."""
    if JOINS:
        say(joins=True)
        wait_for_gate()
    die_at(-1, "start")
    corro.init()
    {each.__name__: each for each in scenarios}[sys.argv[1]]()
