"""Disturbs the servers of a table for minutes, and proves that no push was lost or counted twice.

    corro run -np 2 --servers 3 python table_soak.py [SECONDS=300]

Gradients are small whole numbers and rows are lowered by them, so that float32 has each sum
exactly, in any order: after each step rows have to be what the pushes of all ranks add up to. Rank
0 kills a server, has one rest for two seconds, starts another or lets one go, each time once every
row is on two servers again. Rank 0 prints one line at the end.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt

import corro
import corro.table

KEYS, DIM, BATCH = 20_000, 8, 256
SERVERS = 3  # About so many are there.
LOOKED_AT = 200  # Rows after each step.
RESTED = 2.0  # Seconds.
PATIENCE = 60.0  # Seconds until the servers have got over a disturbance.

Floats = npt.NDArray[np.float32]


def batch(rank: int, step: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """What a rank pushes in a step; every rank can draw what the others push."""
    draw = np.random.default_rng((rank, step))
    gradients = draw.integers(-8, 9, (BATCH, DIM)).astype(np.float32)
    return draw.integers(0, KEYS, BATCH), gradients


class Servers:
    """Those of this job, all started by the agent that has started this process."""

    def alive(self) -> dict[int, int]:
        """Pids by number."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                variables = (path / "environ").read_bytes().split(b"\0")
                parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue  # It has ended.
            numbers = [int(one[13:]) for one in variables if one.startswith(b"CORRO_SERVER=")]
            if parent == os.getppid() and numbers:
                found[numbers[0]] = int(path.name)
        return found

    def disturb(self, draw: random.Random) -> str:
        """Does something to one of them; returns what."""
        alive = self.alive()
        number = draw.choice(sorted(alive))
        if len(alive) < SERVERS:
            self._change("--add", "1")
            return "added"
        if len(alive) > SERVERS:
            self._change("--remove", str(number))
            return "let go"
        chance = draw.random()
        if chance < 0.2:
            self._change("--add", "1")
            return "added"
        if chance < 0.4:
            os.kill(alive[number], signal.SIGSTOP)
            time.sleep(RESTED)
            os.kill(alive[number], signal.SIGCONT)
            return "rested"
        os.kill(alive[number], signal.SIGKILL)
        return "killed"

    @staticmethod
    def _change(*change: str) -> None:
        program = Path(sys.executable).with_name("corro")
        subprocess.run([program, "servers", *change, os.environ["CORRO_JOB_ID"]], check=True)


class Disturber:
    """Rank 0's: a disturbance, then a rest once all is well again."""

    def __init__(self, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._servers = Servers()
        self._next = time.monotonic() + 1.0

    def proceed(self, table: corro.table.Table) -> None:
        if time.monotonic() > self._next + PATIENCE:
            sys.exit(f"soak: rows have {table.copies} copies after {dict(self.counts)}")
        if time.monotonic() < self._next or table.copies < 2:
            return
        self.counts[self._servers.disturb(self._random)] += 1
        self._next = time.monotonic() + self._random.uniform(3.0, 8.0)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 300.0
    corro.init()
    table = corro.table.Table(
        "soak", DIM, optimizer=corro.table.SGD(lr=1.0), initial=corro.table.Constant(0.0)
    )
    disturber = Disturber(seed=1) if corro.rank() == 0 else None
    wanted = np.zeros((KEYS, DIM), np.float32)
    end = time.monotonic() + seconds
    step = 0
    going = True
    while going:
        table.push(*batch(corro.rank(), step))
        for rank in range(corro.size()):
            ids, gradients = batch(rank, step)
            np.subtract.at(wanted, ids, gradients)
        looked_at = np.random.default_rng(step).integers(0, KEYS, LOOKED_AT)
        if not (table.pull(looked_at) == wanted[looked_at]).all():
            sys.exit(f"soak: rows are wrong after step {step}")
        step += 1
        if disturber:
            disturber.proceed(table)
        if step % 20 == 0:
            going = corro.broadcast_object(time.monotonic() < end, root_rank=0)
    if not (table.pull(np.arange(KEYS)) == wanted).all() or table.steps != step:
        sys.exit(f"soak: rows are wrong after all {step} steps")
    if disturber:
        counts = ", ".join(f"{count} {what}" for what, count in sorted(disturber.counts.items()))
        print(f"soak: {step} steps of {corro.size()} ranks are whole; servers: {counts}")


if __name__ == "__main__":
    main()
