"""One rank of the allreduces of served_rows.py: `served_allreduce.py ROUNDS MIB...`.

Rank 0 prints {bytes, median_us, served} for each size, as JSON; `served`: servers took part.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np

import corro
import corro.numpy
from corro import _context


def measure(mib: int, rounds: int) -> list[float]:
    values = np.ones(mib << 18, np.float32)
    sums = corro.numpy.allreduce(values, corro.Sum)
    if not (sums == corro.size()).all():
        sys.exit(f"served: wrong sums of {mib} MiB")
    taken = []
    for _ in range(rounds):
        corro.numpy.barrier()
        begin = time.perf_counter()
        corro.numpy.allreduce(values, corro.Sum, out=sums)
        taken.append(time.perf_counter() - begin)
    return taken


def main() -> None:
    rounds, *sizes = map(int, sys.argv[1:])
    corro.init()
    engine = _context.current().engine
    for mib in sizes:
        before = engine.counter("served")
        median = statistics.median(measure(mib, rounds)) * 1e6
        found = {
            "bytes": mib << 20,
            "median_us": median,
            "served": engine.counter("served") > before,
        }
        if corro.rank() == 0:
            print(json.dumps(found), flush=True)


main()
