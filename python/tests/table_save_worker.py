"""A rank that saves and restores tables, or whose servers come and leave: `... CASE [FOLDER]`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from table_worker import DIM, KEYS, STEPS, Floats, drawn, expected, server_process, summed

import corro.table

FOLDER = sys.argv[2] if len(sys.argv) > 2 else ""
IDS = np.arange(-5, KEYS)
RANKS = 2  # Of those whose pushes count, also where one process reads what they have saved.
SAVED_AT = 6


def made() -> corro.table.Table:
    return corro.table.Table(
        "t", DIM, optimizer=corro.table.SGD(lr=0.5), initial=corro.table.Normal(0.0, 1.0)
    )


def rows_after(start: Floats, steps: int) -> Floats:
    """What so many steps of two ranks make of the rows."""
    rows = dict(zip(IDS.tolist(), start.copy(), strict=True))
    for step in range(steps):
        total: dict[int, Floats] = {}
        for rank in range(RANKS):
            for key, grad in summed(*drawn(rank, step)).items():
                total[key] = total[key] + grad if key in total else grad
        for key, grad in total.items():
            rows[key] = rows[key] - np.float32(0.5) * grad
    return np.stack([rows[key] for key in IDS.tolist()])


def save() -> None:
    """Saves in the middle, and goes on; the end of the program waits for the snapshot."""
    corro.init()
    table = made()
    for step in range(SAVED_AT + 5):
        if step == SAVED_AT:
            table.save(FOLDER)
        table.push(*drawn(corro.rank(), step))


def deltas() -> None:
    """Saves after every second step, one of three whole; each is there before ranks go on."""
    corro.init()
    table = made()
    for step in range(SAVED_AT):
        table.push(*drawn(corro.rank(), step))
        if step % 2 == 1:
            table.save(FOLDER, full_every=3)
            assert table.wait_saved() == (step + 1 if corro.rank() == 0 else None)


def resume() -> None:
    """Goes on from the snapshot, with any number of servers."""
    corro.init()
    table = made()
    start = table.pull(IDS)
    assert table.restore(FOLDER) == SAVED_AT
    assert table.steps == SAVED_AT
    assert (table.pull(IDS) == rows_after(start, SAVED_AT)).all()
    for step in range(SAVED_AT, STEPS):
        table.push(*drawn(corro.rank(), step))
    assert (table.pull(IDS) == expected(start, IDS, corro.size())).all()
    print(f"resumed with {corro.size()} ranks")


def resave() -> None:
    """One process reads what servers have saved, and saves it once more."""
    table = made()
    start = table.pull(IDS)
    assert table.restore(FOLDER) == SAVED_AT
    assert (table.pull(IDS) == rows_after(start, SAVED_AT)).all()
    table.save(FOLDER + "-local")
    assert table.wait_saved() == SAVED_AT
    print("saved without servers")


def dies() -> None:
    """Rank 0 or a server is killed while a snapshot is written: `FOLDER,WHO,MILLISECONDS`."""
    folder, who, milliseconds = FOLDER.split(",")
    corro.init()
    table = corro.table.Table("big", 16, optimizer="adam")
    ids = np.arange(200_000)
    for step in (1, 2):
        mine = ids if corro.rank() == 0 else ids[:0]
        table.push(mine, np.ones((len(mine), 16), np.float32))
        if step == 1:
            table.save(folder)
            table.wait_saved()
    if corro.rank() == 0:
        table.save(folder)
        time.sleep(int(milliseconds) / 1000)
        os.kill(os.getpid() if who == "rank" else server_process(1), signal.SIGKILL)
    table.push([], np.ones((0, 16)))
    print(f"newest: {table.wait_saved()}")


def changes() -> None:
    """A server is added, and both that the job began with leave, one by one."""
    corro.init()
    table = made()
    start = table.pull(IDS)
    for step in range(STEPS):
        if step == 5:
            change_servers("--add", "2")
        if step in (8, 12):
            leave(table, 0 if step == 8 else 1, by_command=step == 12)
        table.push(*drawn(corro.rank(), step))
    assert (table.pull(IDS) == expected(start, IDS, corro.size())).all()
    until_copied(table)
    print(f"changed with {corro.size()} ranks")


def until_copied(table: corro.table.Table) -> None:
    """Pushes until each row is on two servers; the last one may have been found just now."""
    end = time.monotonic() + 60
    while not corro.broadcast_object(table.copies == 2, root_rank=0):
        table.push([], np.ones((0, DIM)))
        assert time.monotonic() < end
        time.sleep(0.02)
    assert table.copies == 2


def change_servers(*change: str) -> None:
    if corro.rank() == 0:
        corro_program = Path(sys.executable).with_name("corro")
        subprocess.run([corro_program, "servers", *change, os.environ["CORRO_JOB_ID"]], check=True)


def leave(table: corro.table.Table, server: int, *, by_command: bool) -> None:
    """Pushes until the server has ended."""
    process = server_process(server)
    corro.barrier()
    if by_command:
        change_servers("--remove", str(server))
    elif corro.rank() == 0:
        os.kill(process, signal.SIGTERM)
    end = time.monotonic() + 60
    while corro.broadcast_object(Path(f"/proc/{process}").exists(), root_rank=0):
        table.push([], np.ones((0, DIM)))
        assert time.monotonic() < end
        time.sleep(0.02)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
