"""Rows of tables: corro.table beside other stores of rows, in one process and over loopback.

Each peer is a process (table_peer.py) that keeps all rows while the peers take turns. They are
asked for the same ids (table_streams.py), and have to give the same rows before anything is timed.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import table_figures as figures
import table_streams as streams
from jobs import BENCH, OUT, PROGRAMS, PYTHON, ROOT, Effort, Family, corro_run, note, run, skipped
from processes import started
from rows import Row
from table_cases import BESIDE, COLD, FROZEN, MEMORY, RESTORED, SETTINGS, SLOWEST, Setting
from table_figures import BUSY, BYTES, CORRO, RATE, Case, Taken, unmeasured
from table_streams import BATCH, SMALL_BATCH

PATIENCE = 900.0  # Seconds of a command; loading takes longest.
BEGINNING = 60.0  # Seconds until a peer is there.
ALIKE = 1e-5  # Relative: Adagrad adds up what repeats in an order that is each store's own.
MAPS = ("flat_hash_map", "locked maps")  # Peers of table_maps.cc.


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rows: int
    batches: int  # Of a run in this process; over loopback a quarter.
    calls: int  # Of those whose slowest are shown.
    rounds: int = 5

    @staticmethod
    def of(effort: Effort) -> Size:
        return Size(effort.of(10_000_000, 1_000_000), effort.of(128, 32), effort.of(2000, 500))


class Running:
    """A peer that runs."""

    def __init__(self, name: str, connection: Connection, log: Path) -> None:
        self._name = name
        self._connection = connection
        self._log = log

    def ask(self, *command: str) -> Any:
        """Its answer; ends the program if there is none."""
        with suppress(OSError, EOFError):  # It has ended.
            self._connection.send(command)
            if self._connection.poll(PATIENCE):
                return self._connection.recv()
        sys.exit(f"table: {self._name} has not answered {command}\n{self._log.read_text()[-4000:]}")


def measure_tables(effort: Effort) -> list[Row]:
    size = Size.of(effort)
    packages, problem = unpacked_packages()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=OUT, prefix="table-") as name:
        folder = Path(name)
        for setting in SETTINGS:
            note(f"table: streams of {size.rows // setting.share} rows")
            write_streams(folder, setting, size)
            rows += Bench(folder, setting, size, packages, problem).measure()
        rows += rows_on_disk(folder, size)
        rows += rows_restored(folder, size)
        rows += measure_changes(folder, effort)
    rows += measure_steps(effort)
    busiest = max(float(str(row.columns["others"] or 0)) for row in rows)
    if busiest > BUSY:
        skipped(f"table: the machine was busy: others used up to {busiest:.2f} cores meanwhile")
    return rows


def measure_steps(effort: Effort) -> list[Row]:
    """What a step takes where ranks ask ahead, or push ahead of each other."""
    note("table: steps of two ranks")
    script = [str(PYTHON), str(BENCH / "table_ahead.py"), str(effort.of(100, 40)), "5"]
    (seconds,) = run(corro_run(2, "--servers", "1", *script))
    return figures.steps(seconds)


def measure_changes(folder: Path, effort: Effort) -> list[Row]:
    """Pushes of two ranks while servers come and leave, and while snapshots are written."""
    note("table: servers that come and leave, and snapshots")
    script = [str(PYTHON), str(BENCH / "table_changes.py"), str(effort.of(2_000_000, 200_000))]
    script += [str(effort.of(5, 1)), str(effort.of(5, 2)), str(folder / "changes")]
    return figures.changes(FROZEN, BESIDE, run(corro_run(2, "--servers", "2", *script)))


class Bench:
    """Measures the rows of a setting."""

    def __init__(
        self, folder: Path, setting: Setting, size: Size, packages: str, problem: str
    ) -> None:
        self._folder = folder
        self._setting = setting
        self._size = size
        self._packages = packages
        self._problem = problem

    def measure(self) -> list[Row]:
        setting = self._setting
        lacks = {peer: lack for peer in setting.peers if (lack := self._lack_of(peer))}
        with ExitStack() as stack:
            peers = {
                peer: stack.enter_context(self._started(peer))
                for peer in setting.peers
                if peer not in lacks
            }
            rows = self._load(peers)
            self._check_answers(peers)
            for case in setting.cases:
                rows += figures.rates(case, self._rates(case, peers))
                rows += [unmeasured(case, RATE, *lack) for lack in lacks.items()]
            if setting.servers == 1:
                rows += figures.latencies(SLOWEST, self._times(peers))
        return rows

    def _lack_of(self, peer: str) -> str:
        """Why a peer cannot be measured; empty if it can."""
        if peer == "ps-lite":
            return "Debian has no package of it"
        if peer == "redis":
            return self._problem
        if peer in MAPS and not (PROGRAMS / "libtable_maps.so").exists():
            return "Abseil was not there when the benchmarks were compiled"
        return ""

    @contextmanager
    def _started(self, peer: str) -> Iterator[Running]:
        """A peer that keeps no row yet."""
        setting = self._setting
        door = self._folder / "door"
        arguments = [peer, str(setting.dim), setting.optimizer, str(self._rows())]
        script = [str(PYTHON), str(BENCH / "table_peer.py"), str(door), *arguments]
        script += [str(self._folder), self._packages]
        command = script
        if peer == CORRO and setting.servers:
            command = corro_run(1, "--servers", str(setting.servers), *script)
        log = OUT / "table.log"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(door))
            listener.listen()
            with started(command, log) as process:
                door_of_peer = accepted(listener, process, log)
                door.unlink()
                with Connection(door_of_peer.detach()) as connection:
                    yield Running(peer, connection, log)
                process.wait(BEGINNING)

    def _load(self, peers: Mapping[str, Running]) -> list[Row]:
        """Rows of the memory that rows need, beside their values, where there is no other state."""
        found = {}
        for name, peer in peers.items():
            note(f"table: {name} loads {self._rows()} rows of {self._setting.dim}")
            found[name] = [peer.ask("load") - self._setting.dim * 4]
        if self._setting.optimizer != "sgd" or self._setting.servers > 1:
            return []
        place = "remote" if self._setting.servers else "local"
        found.pop("torch", None)  # Finds no keys.
        return figures.judged(replace(MEMORY, name=f"{MEMORY.name}, {place}"), BYTES, found)

    def _check_answers(self, peers: Mapping[str, Running]) -> None:
        """Ends the program where a peer gives other rows than it was put, or after Adagrad other
        ones than corro gives."""
        exact = self._setting.optimizer == "sgd"
        for stream in {case.stream for case in self._setting.cases}:
            ids = np.load(self._folder / f"{stream}.npy", mmap_mode="r")[0]
            put = streams.rows_of(np.asarray(ids), self._setting.dim)
            want = put if exact else peers[CORRO].ask("rows", stream)
            for name, peer in peers.items():
                rows = peer.ask("rows", stream)
                if not np.allclose(rows, want, rtol=0 if exact else ALIKE, atol=0):
                    sys.exit(f"table: {name} gives other rows: {stream}")

    def _rates(self, case: Case, peers: Mapping[str, Running]) -> Mapping[str, list[Taken]]:
        taken: dict[str, list[Taken]] = {name: [] for name in peers}
        for peer in peers.values():
            peer.ask(case.verb, case.stream)  # Once for caches and memory of its own.
        note(f"table: {case.name}")
        for _ in range(self._size.rounds):
            for name, peer in peers.items():
                taken[name].append(peer.ask(case.verb, case.stream))
        return taken

    def _times(self, peers: Mapping[str, Running]) -> Mapping[str, list[list[float]]]:
        taken: dict[str, list[list[float]]] = {name: [] for name in peers}
        note(f"table: {SLOWEST.name}")
        for _ in range(self._size.rounds):
            for name, peer in peers.items():
                taken[name].append(peer.ask(SLOWEST.verb, SLOWEST.stream))
        return taken

    def _rows(self) -> int:
        return self._size.rows // self._setting.share


def rows_on_disk(folder: Path, size: Size) -> list[Row]:
    """Pulls of rows on disk, beside as many random reads of the same disk, by turns."""
    note(f"table: {COLD.name}")
    count, reads = size.rows // 4, size.rows // 50
    command = [str(PROGRAMS / "table_tiers"), str(folder / "rows"), str(count), str(reads)]
    rounds = run([*command, str(size.rounds)])
    found = {CORRO: [one["cold"] for one in rounds], "disk": [one["disk"] for one in rounds]}
    more = {
        CORRO: {"note": f"{median(one['cold_cpu_us'] for one in rounds):.1f} us CPU a read"},
        "disk": {"note": f"{median(one['disk_cpu_us'] for one in rounds):.1f} us CPU a read"},
    }
    return figures.judged(COLD, figures.READS, found, more)


def rows_restored(folder: Path, size: Size) -> list[Row]:
    """A snapshot that is read, out of the page cache where there is memory for it."""
    note(f"table: {RESTORED.name}")
    command = [str(PROGRAMS / "table_restore"), str(folder / "snapshot"), str(size.rows)]
    rounds = run([*command, str(size.rounds)])
    found = {CORRO: [one["rows"] / one["wall_s"] / 1e6 for one in rounds]}
    cpu = median(one["mrows_per_cpu_s"] for one in rounds)
    more = {CORRO: {"note": f"{cpu:.2f} M rows/CPU s of both threads"}}
    return figures.judged(RESTORED, figures.RESTORED, found, more)


def write_streams(folder: Path, setting: Setting, size: Size) -> None:
    """NAME.npy for each stream of the setting's cases: [batches, ids]."""
    rows = size.rows // setting.share
    batches = size.batches // 4 if setting.servers else size.batches
    count = batches * BATCH
    for name in {case.stream for case in setting.cases}:
        kind, _, skew = name.partition("-")
        if kind == "zipf":
            ids = streams.zipf(rows, count, float(skew))
        elif kind == "criteo":
            samples = BATCH // len(streams.CRITEO)
            ids = streams.criteo(rows, batches * samples)
        else:
            ids = streams.uniform(rows, count)
        np.save(folder / f"{name}.npy", ids.reshape(batches, -1))
    small = streams.uniform(rows, size.calls * SMALL_BATCH)
    np.save(folder / f"{SLOWEST.stream}.npy", small.reshape(size.calls, -1))


def accepted(listener: socket.socket, process: subprocess.Popen[bytes], log: Path) -> socket.socket:
    """The peer's connection; ends the program if the peer ends or does not come."""
    listener.settimeout(0.1)
    end = time.monotonic() + BEGINNING
    while process.poll() is None and time.monotonic() < end:
        with suppress(TimeoutError):
            return listener.accept()[0]
    sys.exit(f"table: {process.args!r} does not come\n{log.read_text()[-4000:]}")


def unpacked_packages() -> tuple[str, str]:
    """Where the peers of packages.txt are unpacked; or why they are not."""
    command = [str(ROOT / "tools/unpacked_packages.sh"), "bench-peers"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or [""]
    return (lines[-1], "") if done.returncode == 0 else ("", f"not unpacked: {lines[-1]}")


FAMILIES = {"table": Family(measure_tables)}
