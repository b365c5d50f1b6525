"""init_corro.py FOLDER: one rank that joins a job when all its ranks have imported what they need.

At a gate a rank writes a byte into the pipe FOLDER/arrived and waits for a lock of the gate's file,
which run.py holds until all have come. The gates are `init`, before init(), and `end`, after it: a
rank that has joined must not take processors from those that still do. Prints a line of JSON:
{end_ns, processor_us}, the first on the clock of all processes.
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from pathlib import Path

import corro.numpy


def wait_at(folder: Path, gate: str) -> None:
    with (folder / gate).open() as lock:
        with (folder / "arrived").open("wb") as arrived:
            arrived.write(b".")
        fcntl.flock(lock, fcntl.LOCK_SH)


def main() -> None:
    folder = Path(sys.argv[1])
    wait_at(folder, "init")
    processor_ns = time.process_time_ns()
    corro.init()
    end_ns, processor_ns = time.monotonic_ns(), time.process_time_ns() - processor_ns
    wait_at(folder, "end")
    print(json.dumps({"end_ns": end_ns, "processor_us": processor_ns / 1e3}), flush=True)


if __name__ == "__main__":
    main()
