"""Steps of a table whose ranks pull, compute and push: the ways to wait less.

    corro run -np 2 --servers 1 python table_ahead.py STEPS ROUNDS

Computing is a pause, as of a rank whose processor is free meanwhile (it computes on a device). The
ways take turns. Rank 0 prints, for each way, the seconds of a step in each round, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import dataclass
from typing import Literal

import numpy as np

import corro
import corro.table

DIM, BATCH, KEYS = 16, 16384, 1_000_000
COMPUTED = 0.005  # Seconds.


@dataclass(frozen=True)
class Way:
    """How a table is used. `jitter`: a step computes for up to so much of its time more."""

    name: str
    mode: Literal["sync", "bounded", "async"]
    staleness: int = 0
    ahead: bool = False
    jitter: float = 0.0


WAYS = (
    Way("sync", "sync"),
    Way("sync, prefetch", "sync", ahead=True),
    Way("bounded, prefetch", "bounded", 2, ahead=True),
    Way("async, prefetch", "async", 2, ahead=True),
    Way("sync, uneven ranks", "sync", jitter=1.0),
    Way("bounded, uneven ranks", "bounded", 2, jitter=1.0),
)


def run(way: Way, table: corro.table.Table, batches: np.ndarray, pauses: random.Random) -> float:
    """Returns the seconds of a step."""
    gradients = np.full((BATCH, DIM), 1 / 1024, np.float32)
    corro.barrier()
    begin = time.perf_counter()
    for step, ids in enumerate(batches):
        table.pull(ids)
        if way.ahead and step + 1 < len(batches):
            table.prefetch(batches[step + 1])
        time.sleep(COMPUTED * (1 + way.jitter * pauses.random()))
        table.push(ids, gradients)
    table.wait()
    return (time.perf_counter() - begin) / len(batches)


def main() -> None:
    steps, rounds = map(int, sys.argv[1:])
    corro.init()
    draw = np.random.default_rng(corro.rank())
    batches = draw.zipf(1.2, (steps, BATCH)) % KEYS
    pauses = random.Random(corro.rank())
    tables = {
        way: corro.table.Table(f"t{i}", DIM, mode=way.mode, staleness=way.staleness)
        for i, way in enumerate(WAYS)
    }
    seconds: dict[str, list[float]] = {way.name: [] for way in WAYS}
    for number in range(rounds + 1):  # The first one is for warming up.
        for way in WAYS:
            taken = run(way, tables[way], batches, pauses)
            if number:
                seconds[way.name].append(taken)
    if corro.rank() == 0:
        print(json.dumps(seconds))


main()
