"""One peer of the rows of tables: a process that keeps one store of rows, and does what it is told.

    table_peer.py SOCKET STORE DIM OPTIMIZER ROWS STREAMS PACKAGES

It connects to SOCKET, takes commands there until that is closed, and answers each, in turn:

    load           puts all rows                      answer: bytes of memory of each
    rows STREAM    pulls the first batch of a stream          its rows, [ids, dim]
    pull STREAM    pulls each batch of a stream               Taken
    push STREAM    the same with gradients                    Taken
    step STREAM    a pull and a push of each batch            Taken
    times STREAM   pulls each batch of a stream               seconds of each pull

STREAMS is a folder with NAME.npy for each stream: [batches, ids].
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import numpy as np
import table_stores
from table_figures import Taken
from table_streams import Values, rows_of

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
LOADED = 4096  # Rows that are put at once: few, since what that needs besides is counted, too.
GRADIENT = np.float32(1 / 1024)  # Every element of every gradient.


class Peer:
    def __init__(self, arguments: list[str]) -> None:
        name, dim, optimizer, rows, streams, packages = arguments
        self._dim = int(dim)
        self._rows = int(rows)
        self._streams = Path(streams)
        self._store = table_stores.make(name, self._dim, optimizer, self._rows, packages)
        self._prepared: dict[str, list[Any]] = {}

    def load(self) -> float:
        """Puts all rows; returns how many bytes each has made the process that keeps it grow."""
        before = self._memory()
        for first in range(0, self._rows, LOADED):
            ids = np.arange(first, min(first + LOADED, self._rows), dtype=np.uint64)
            self._store.put(self._store.prepare(ids), rows_of(ids, self._dim))
        return (self._memory() - before) / self._rows

    def rows(self, stream: str) -> Values:
        return self._store.pull(self._batches(stream)[0])

    def pull(self, stream: str) -> Taken:
        return self._timed(stream, self._store.pull)

    def push(self, stream: str) -> Taken:
        return self._timed(stream, self._store.push, self._gradients(stream))

    def step(self, stream: str) -> Taken:
        return self._timed(stream, self._store.step, self._gradients(stream))

    def times(self, stream: str) -> list[float]:
        found = []
        for batch in self._batches(stream):
            begin = time.perf_counter()
            self._store.pull(batch)
            found.append(time.perf_counter() - begin)
        return found

    def close(self) -> None:
        self._store.close()

    def _timed(self, stream: str, function: Callable[..., object], *arguments: Values) -> Taken:
        batches = self._batches(stream)
        machine, server = machine_seconds(), seconds_of(self._store.servers)
        wall, client = time.perf_counter(), time.process_time()
        for batch in batches:
            function(batch, *arguments)
        client = time.process_time() - client
        wall = time.perf_counter() - wall
        server = seconds_of(self._store.servers) - server
        others = max(0.0, machine_seconds() - machine - client - server)
        return Taken(self._ids(stream).size, wall, client, server, others)

    def _ids(self, stream: str) -> np.ndarray:
        return np.load(self._streams / f"{stream}.npy", mmap_mode="r")

    def _batches(self, stream: str) -> list[Any]:
        if stream not in self._prepared:
            self._prepared[stream] = [self._store.prepare(ids) for ids in self._ids(stream)]
        return self._prepared[stream]

    def _gradients(self, stream: str) -> Values:
        """Those of any batch of the stream."""
        return np.full((self._ids(stream).shape[1], self._dim), GRADIENT)

    def _memory(self) -> int:
        """Bytes in memory of those that have the rows."""
        return sum(resident(pid) for pid in self._store.servers or (os.getpid(),))


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def seconds_of(pids: Iterable[int]) -> float:
    """Processor time of all threads of these processes."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def machine_seconds() -> float:
    """Processor time that all processes of this machine have had, and what its host took away."""
    counts = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    idle = counts[3] + counts[4]
    return (sum(counts) - idle) / TICKS


def main() -> None:
    address, *arguments = sys.argv[1:]
    with closing(Peer(arguments)) as peer, Client(address, family="AF_UNIX") as connection:
        while True:
            try:
                verb, *rest = connection.recv()
            except EOFError:  # Who asked has ended, or has no more to ask.
                return
            connection.send(getattr(peer, verb)(*rest))


if __name__ == "__main__":
    main()
