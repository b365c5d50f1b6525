"""Pushes to a table while its servers come and leave, and while a snapshot is written.

    corro run -np 2 --servers 2 python table_changes.py ROWS SECONDS ROUNDS FOLDER

Rank 0 prints, for each round, as JSON:

    alone           pushes a second while nothing else happens
    snapshot        the same while a snapshot is written, as often as SECONDS need
    usual_ms        what half of the pushes take, at most, while nothing else happens
    longest_ms      the longest push while a server comes and another one leaves

Rows are on two servers, so these copy a half of them to the new one, and as many again of the one
that leaves.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import corro
import corro.table

DIM, BATCH = 16, 1024
LOADED = 65536  # Rows that are put at once.
ASKED = 10  # Pushes between two questions to rank 0 whether to go on.


class Pushes:
    """All ranks push until rank 0 has seen enough."""

    def __init__(self, rows: int) -> None:
        draw = np.random.default_rng(corro.rank())
        self._table = corro.table.Table("changes", DIM, optimizer="adagrad")
        self._batches = [draw.integers(0, rows, BATCH) for _ in range(256)]
        self._gradients = np.full((BATCH, DIM), 1 / 1024, np.float32)
        for first in range(0, rows, LOADED):
            ids = np.arange(first, min(first + LOADED, rows))[corro.rank() :: corro.size()]
            self._table.push(ids, np.ones((len(ids), DIM), np.float32))

    @property
    def table(self) -> corro.table.Table:
        return self._table

    def until(self, over: Callable[[], bool]) -> list[float]:
        """What each push took, in seconds."""
        taken: list[float] = []
        while True:
            for _ in range(ASKED):
                begin = time.perf_counter()
                self._table.push(self._batches[len(taken) % 256], self._gradients)
                taken.append(time.perf_counter() - begin)
            if corro.broadcast_object(corro.rank() == 0 and over(), root_rank=0):
                return taken

    def during(self, seconds: float) -> list[float]:
        end = time.monotonic() + seconds
        return self.until(lambda: time.monotonic() > end)


def pushed_beside_snapshots(pushes: Pushes, folder: Path, seconds: float) -> list[float]:
    """Those of as many snapshots as the seconds need, from the beginning to the end of each."""
    taken: list[float] = []
    end = time.monotonic() + seconds
    going = True
    while going:
        snapshot = folder / f"step-{pushes.table.steps}"
        pushes.table.save(folder)
        taken += pushes.until((snapshot / "manifest.json").exists)
        pushes.table.wait_saved()
        going = corro.broadcast_object(time.monotonic() < end, root_rank=0)
    return taken


def change_servers(*change: str) -> None:
    program = Path(sys.executable).with_name("corro")
    subprocess.run([program, "servers", *change, os.environ["CORRO_JOB_ID"]], check=True)


def server_process(number: int) -> int | None:
    """The pid of a server that the agent of this process has started."""
    wanted = f"CORRO_SERVER={number}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            variables = (path / "environ").read_bytes().split(b"\0")
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue  # It has ended.
        if wanted in variables and parent == os.getppid():
            return int(path.name)
    return None


def pushed_beside_changes(pushes: Pushes, number: int) -> list[float]:
    """Server `number` comes, and the oldest one leaves."""
    if corro.rank() == 0:
        change_servers("--add", "1")
    taken = pushes.until(lambda: server_process(number) is not None)
    taken += pushes.during(2.0)  # Rank 0 looks for new servers every two seconds.
    oldest = server_process(number - 2) if corro.rank() == 0 else None
    if corro.rank() == 0:
        change_servers("--remove", str(number - 2))
    return taken + pushes.until(lambda: not Path(f"/proc/{oldest}").exists())


def main() -> None:
    rows, seconds, rounds = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    folder = Path(sys.argv[4])
    corro.init()
    pushes = Pushes(rows)
    pushes.during(seconds)  # For warming up.
    for number in range(rounds):
        alone = pushes.during(seconds)
        beside = pushed_beside_snapshots(pushes, folder, seconds)
        changed = pushed_beside_changes(pushes, 2 + number)
        if corro.rank() == 0:
            found = {
                "alone": len(alone) / sum(alone),
                "snapshot": len(beside) / sum(beside),
                "usual_ms": statistics.median(alone) * 1e3,
                "longest_ms": max(changed) * 1e3,
            }
            print(json.dumps(found), flush=True)


main()
