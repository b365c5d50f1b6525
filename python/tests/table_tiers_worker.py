"""A rank whose table is larger than the memory it may have: `table_tiers_worker.py CASE FOLDER`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import corro.table

DIM = 64  # A row has 512 bytes with its sums of squares.
KEYS = 20_480  # 10 MiB of rows.
BUDGET = "1 MiB"
FOLDER = sys.argv[2]


def made(name: str, **options: Any) -> corro.table.Table:
    return corro.table.Table(name, DIM, optimizer="adagrad", **options)


def push(step: int, *tables: corro.table.Table) -> None:
    """A step of each of the tables, of the same gradients."""
    random = np.random.default_rng((corro.rank(), step))
    ids = random.integers(0, KEYS if step % 3 else 500, 3000)
    grads = random.standard_normal((len(ids), DIM)).astype(np.float32)
    for table in tables:
        table.push(ids, grads)


def files() -> dict[int, int]:
    """By process, the bytes on disk of files without a name in the folder."""
    found: dict[int, int] = {}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link).startswith(FOLDER):
                found[int(link.parts[2])] = os.stat(link).st_blocks * 512
        except OSError:  # It is closed, or another user's.
            continue
    return found


def check_alike(*tables: corro.table.Table) -> None:
    one, other = (table.pull(range(KEYS)) for table in tables)
    assert (one == other).all()
    assert np.count_nonzero(one.any(axis=1)) > KEYS * 0.9


def trains() -> None:
    """A table of ten times its budget has the bits of one in memory, and lies on disk."""
    corro.init()
    tiers = made("tiers", budget=BUDGET, spill=FOLDER)
    memory = made("memory")
    for step in range(30):
        push(step, tiers, memory)
    check_alike(tiers, memory)
    if corro.rank() == 0:
        assert not os.listdir(FOLDER)
        assert os.stat(FOLDER).st_mode & 0o777 == 0o700
        kept = files()
        assert len(kept) == int(os.environ["CORRO_SERVERS"])
        assert all(size > 5 << 20 for size in kept.values()), kept
    print(f"trains with {corro.size()} ranks")


def replaced() -> None:
    """A server is killed; its rows come from the disk of the other one to that of a new one."""
    corro.init()
    tiers = made("tiers", budget=BUDGET, spill=FOLDER)
    memory = made("memory")
    for step in range(10):
        push(step, tiers, memory)
    corro.barrier()
    before = set(files())
    corro.barrier()
    if corro.rank() == 0:
        os.kill(min(before), signal.SIGKILL)
    end = time.monotonic() + 120
    for copies in (1, 2):
        while corro.broadcast_object(min(tiers.copies, memory.copies), root_rank=0) != copies:
            for table in (tiers, memory):
                table.push([], np.ones((0, DIM)))
            assert time.monotonic() < end
            time.sleep(0.02)
    for step in range(10, 20):
        push(step, tiers, memory)
    check_alike(tiers, memory)
    if corro.rank() == 0:
        after = files()
        assert len(after) == 2, (before, after)
        assert all(size > 5 << 20 for size in after.values()), after
    print(f"replaced with {corro.size()} ranks")


def full() -> None:
    """An index that has no room in its budget is refused in one line; pulls go on."""
    corro.init()
    table = corro.table.Table("t", 1, budget=BUDGET, spill=FOLDER)
    first = np.arange(10_000)
    table.push(first, np.ones((len(first), 1)))
    try:
        for step in range(1, 100):
            table.push(first + step * len(first), np.ones((len(first), 1)))
    except corro.ResourceExhaustedError as error:
        print(f"full: {error}")
    assert (table.pull(first) == table.pull([0])).all()
    assert (table.pull(first) != 0).all()
    print(f"reads with {corro.size()} ranks")


globals()[sys.argv[1]]()
