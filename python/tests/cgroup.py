"""A memory cgroup of a test's own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Where the memory controller may be, and its limits of memory and of swap: version 1, version 2.
HIERARCHIES = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max", "memory.swap.max"),
)


def _create() -> tuple[Path, str, str]:
    """Returns a new cgroup and the files of its limits, or skips the test and says why."""
    memberships = Path("/proc/self/cgroup").read_text().splitlines()
    for root, limit, swap in HIERARCHIES:
        key = "0::" if limit == "memory.max" else ":memory:"
        own = next((line.split(key, 1)[1] for line in memberships if key in line), None)
        group = root / (own or "").strip("/") / f"corro-test-{os.getpid()}"
        if own is None or not group.parent.is_dir():
            continue
        try:
            group.mkdir()
        except OSError as error:
            pytest.skip(f"cannot make a cgroup: {error}")
        if (group / limit).exists():
            return group, limit, swap
        group.rmdir()
    pytest.skip("no cgroup hierarchy with a memory controller is mounted")


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[list[str]]:
    """Yields the beginning of a command line that runs a program under the limit."""
    group, limit, swap = _create()
    try:
        (group / limit).write_text(str(limit_bytes))
        if (group / swap).exists():
            (group / swap).write_text("0" if swap == "memory.swap.max" else str(limit_bytes))
        enter = f"import os, sys; open('{group}/cgroup.procs', 'w').write(str(os.getpid())); "
        yield [sys.executable, "-c", enter + "os.execvp(sys.argv[1], sys.argv[1:])"]
    finally:
        end = time.monotonic() + 60
        while (group / "cgroup.procs").read_text() and time.monotonic() < end:
            time.sleep(0.01)
        group.rmdir()
