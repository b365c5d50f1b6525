"""Rows of many ranks on two cores: how long they take to join, and a small operation."""

from __future__ import annotations

import fcntl
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allreduce_rows import OPEN_MPIS, Setting, corro_peer, interleaved, row
from jobs import BENCH, PYTHON, Effort, Family, corro_run, lines_of, note
from rows import Row, timed

CORES = 2
INIT_BARS = {48: 0.7e6, 96: 1.5e6}  # Microseconds, by ranks.
MANY = Setting(48, "shm")
BYTES = 32


@contextmanager
def on_two_cores() -> Iterator[None]:
    """Keeps what is started meanwhile on as many cores as the bars are for."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:CORES])
    yield
    os.sched_setaffinity(0, allowed)


class Gates:
    """Where ranks wait without using a processor; init_corro.py says how."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        os.mkfifo(folder / "arrived")
        self._arrived = os.open(folder / "arrived", os.O_RDWR)
        self._locks = {name: os.open(folder / name, os.O_CREAT | os.O_RDWR) for name in names}
        for lock in self._locks.values():
            fcntl.flock(lock, fcntl.LOCK_EX)

    def wait_for(self, ranks: int) -> None:
        """Waits until so many ranks have come to a gate."""
        missing = ranks
        while missing > 0:
            if not select.select([self._arrived], [], [], 120)[0]:
                sys.exit(f"init: {missing} of {ranks} ranks did not come")
            missing -= len(os.read(self._arrived, missing))

    def open(self, name: str) -> None:
        fcntl.flock(self._locks[name], fcntl.LOCK_UN)

    def close(self) -> None:
        for descriptor in (self._arrived, *self._locks.values()):
            os.close(descriptor)


def join(ranks: int) -> tuple[float, float]:
    """Starts a job; returns how long all its init() took, and their processor time, in us."""
    with tempfile.TemporaryDirectory(prefix="corro-bench-") as folder:
        gates = Gates(Path(folder), ["init", "end"])
        script = str(BENCH / "init_corro.py")
        command = corro_run(ranks, "--show", "all", str(PYTHON), script, folder)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
            try:
                gates.wait_for(ranks)
                begin = time.monotonic_ns()
                gates.open("init")
                gates.wait_for(ranks)
                gates.open("end")
                lines = lines_of(job.communicate(timeout=120)[0])
            finally:
                gates.close()
                job.terminate()
    if job.returncode != 0 or len(lines) != ranks:
        sys.exit(f"init: exit status {job.returncode}, {len(lines)} of {ranks} ranks")
    took_ns = max(line["end_ns"] for line in lines) - begin
    return took_ns / 1e3, sum(line["processor_us"] for line in lines)


def measure_init(effort: Effort) -> list[Row]:
    """From the opening of the gate to the last rank's return from init()."""
    rows = []
    for ranks, bar in INIT_BARS.items():
        note(f"init: {ranks} ranks")
        with on_two_cores():
            joins = [join(ranks) for _ in range(effort.of(7, 3))]
        times, processor = zip(*joins, strict=True)
        columns = {
            "ranks": ranks,
            "processor_us": statistics.median(processor),
            "min_us": min(times),
        }
        rows.append(timed("init", columns, statistics.median(times), bar))
    return rows


def measure_many(effort: Effort) -> list[Row]:
    """A small allreduce of many ranks: corro's ratio is to the best MPI. MPICH is none of them: its
    ranks keep a core while they wait, so each hand-over takes a time slice."""
    own = corro_peer("private")
    with on_two_cores():
        figures = interleaved([own, *OPEN_MPIS], MANY, ["0.2", str(BYTES)], effort.rounds)
    times = {peer: by_size[BYTES] for peer, by_size in figures.items()}
    best = min(times[peer][1] for peer in OPEN_MPIS)
    rows = [row(MANY, BYTES, ("corro", "private"), times[own], times[own][1] / best, 1.0)]
    for peer in OPEN_MPIS:
        ratio = times[own][1] / times[peer][1]
        rows.append(row(MANY, BYTES, (peer.name, "private"), times[peer], ratio))
    return rows


FAMILIES = {"init": Family(measure_init), "many": Family(measure_many)}
