"""What the drivers of allreduces inside compiled functions share: cases, answers and times.

A driver gives its framework; the cases are the same. Two ranks. Rank 0 prints a line of JSON for
each case: {"case": "4 B", "min_us": 1.0, "us": 1.0}. `us` is the median, of a call of the function;
of a case in a row, of one of its allreduces.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy

# Name, elements, allreduces in a row, and by how much fewer samples are taken.
CASES = [("4 B", 1, 1, 1), ("1 MiB", 1 << 18, 1, 2), ("64 MiB", 1 << 24, 1, 10)]
ROW = 100
CASES.append(("4 B in a row", 1, ROW, 4))
# Of each rank's tensor in a row. They differ, so that no compiler knows what comes out; their sum
# is 1, and all results are exact.
SHARES = (0.25, 0.75)

Body = Callable[[Any, Any], Any]  # Of a function: a tensor and this rank's share of each reduction.


class Framework(Protocol):
    """What differs between the drivers."""

    rank: int

    def compiled(self, body: Body) -> Body:
        """The function; its calls return when the result is there."""

    def reduced(self, tensor: Any, name: str) -> Any:
        """The sum over all ranks, in a function."""

    def put(self, values: numpy.ndarray) -> Any:
        """A tensor of the framework."""

    def get(self, tensor: Any) -> numpy.ndarray:
        """The values of a result."""


def measure(framework: Framework, samples: int) -> None:
    for case, count, in_a_row, fewer in CASES:
        function = framework.compiled(body_of(framework, in_a_row))
        check(framework, function, case, count, in_a_row)
        times = times_of(framework, function, count, max(5, samples // fewer))
        if framework.rank == 0:
            least, middle = (each / in_a_row for each in (min(times), statistics.median(times)))
            print(json.dumps({"case": case, "min_us": least, "us": middle}), flush=True)


def body_of(framework: Framework, in_a_row: int) -> Body:
    def one(tensor: Any, share: Any) -> Any:  # noqa: ARG001
        return framework.reduced(tensor, "one")

    def row(tensor: Any, share: Any) -> Any:
        for i in range(in_a_row):
            tensor = framework.reduced(tensor * share, f"row.{i}")
        return tensor

    return one if in_a_row == 1 else row


def check(framework: Framework, function: Body, case: str, count: int, in_a_row: int) -> None:
    """Ends the program where an element is not exactly what it has to be."""
    base = (numpy.arange(count) % 13).astype(numpy.float32)
    share = numpy.full(1, SHARES[framework.rank], numpy.float32)
    got = framework.get(
        function(framework.put(base + numpy.float32(framework.rank)), framework.put(share))
    )
    want = 2 * base + 1 if in_a_row == 1 else base + numpy.float32(SHARES[1])
    if not numpy.array_equal(got, want):
        sys.exit(f"{case}: wrong answer on rank {framework.rank}: {got[:8]}, not {want[:8]}")


def times_of(framework: Framework, function: Body, count: int, samples: int) -> list[float]:
    """Returns the microseconds of each call; the first calls are left out."""
    tensor = framework.put(numpy.zeros(count, numpy.float32))
    share = framework.put(numpy.zeros(1, numpy.float32))
    for _ in range(max(3, samples // 5)):
        function(tensor, share)
    times = []
    for _ in range(samples):
        start = time.perf_counter()
        function(tensor, share)
        times.append((time.perf_counter() - start) * 1e6)
    return times
