"""What many ranks of one host cost it: memory and connections."""

from __future__ import annotations

import json
import re

import pytest
from conftest import Launch
from forbidden_reads import FORBID

# Every rank prints the shared memory that it has open or mapped, by inode: blocks that are
# committed, whether touched or not; and the address space that other ranks' segments take. It has
# sent 1 MiB of private memory over the world, over a loaded plan (a set of buckets is one) and, by
# a name, over both of the lanes that named operations have: the second one when a step needs no
# message any more.
MEMORY = """
import json, os
import numpy
import corro, corro.numpy as cn
from corro import _context, _native

corro.init()
def step():
    small = [cn.allreduce_async(numpy.ones(1), corro.Sum, f"small {i}") for i in range(31)]
    assert (cn.allreduce(data, corro.Sum, "large") == corro.size()).all()
    for handle in small:
        handle.wait()
    corro.barrier()
    return _context.current().engine.counter("named_messages")

data = numpy.ones(1 << 18, numpy.float32)
assert (cn.allreduce(data, corro.Sum) == corro.size()).all()
messages = [step() for _ in range(8)]
assert messages[0] > 0 or corro.rank() > 0, messages
assert messages[-1] == messages[-2], messages
part = ("gradient", _native.F32, data.ctypes.data, data.size, 0)
buckets = corro.world().native.buckets(
    parts=[part], reduce_op=int(corro.Sum), passes=1, prescale=1, postscale=1, codec=0,
    buffers=data,
)
buckets.ready(0)
buckets.close(0, 0)
buckets.wait()
assert (data == corro.size()).all()
corro.barrier()
bytes_of = {}
for folder in ("/proc/self/fd", "/proc/self/map_files"):
    for entry in os.listdir(folder):
        try:
            file = os.stat(f"{folder}/{entry}")
            name = os.readlink(f"{folder}/{entry}")
        except FileNotFoundError:  # The descriptor of listdir() itself.
            continue
        if name.startswith(("/memfd:", "/dev/shm/")):
            bytes_of[file.st_ino] = 512 * file.st_blocks
print("memory", json.dumps(bytes_of))
mapped = 0
for line in open("/proc/self/maps"):
    if "/memfd:corro-segment" in line:
        start, end = (int(place, 16) for place in line.split()[0].split("-"))
        mapped += end - start
own = 8192 + max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 1 << 30)
print("addresses", mapped - own)
corro.barrier()
"""


@pytest.mark.parametrize("staged", [False, True], ids=["read", "staged"])
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_shared_memory_grows_with_the_ranks_of_a_host(
    launch: Launch, ranks: int, staged: bool
) -> None:
    forbidden = ",".join(map(str, range(ranks))) if staged else ""
    job = launch("-c", FORBID + MEMORY, ranks=ranks, FORBIDDEN=forbidden).check()
    bytes_of: dict[str, int] = {}
    said = [line.partition("memory ")[2] for line in job.output.splitlines() if "memory " in line]
    assert len(said) == ranks, job.output
    for line in said:
        bytes_of |= json.loads(line)
    print(f"{sum(bytes_of.values()) / ranks / 2**20:.2f} MiB a rank")
    assert sum(bytes_of.values()) <= ranks * (4 << 20)
    mapped = [int(found) for found in re.findall(r"addresses (\d+)", job.output)]
    windows = (ranks - 1) * (16 << 20)
    assert mapped == [windows] * ranks, "a window of each other rank's segment"


# Every rank counts its connections, and the memory that pairs have, after init() and after it has
# talked to one other rank.
CONNECTIONS = """
import os, time
import numpy
import corro, corro.numpy as cn

def streams():
    found = set()  # By inode: a memory may have a descriptor, a mapping, or both.
    for folder in ("/proc/self/fd", "/proc/self/map_files"):
        for entry in os.listdir(folder):
            try:
                name = os.readlink(f"{folder}/{entry}")
                if name.startswith(("socket:", "/memfd:corro-stream")):
                    found.add(os.stat(f"{folder}/{entry}").st_ino)
            except FileNotFoundError:  # The descriptor of listdir() itself.
                continue
    return len(found)

before = streams()
corro.init()
joined = streams() - before
other = corro.rank() ^ 1
sending = cn.send_async(numpy.ones(4), other)
cn.recv(numpy.empty(4), other)
sending.wait()
# Both may have dialled; one of the two connections goes. Nothing follows here: what other ranks did
# next would be counted.
end = time.monotonic() + 30
while streams() - before > joined + 1 and time.monotonic() < end:
    time.sleep(0.01)
print("streams", joined, streams() - before)
"""


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_streams_are_made_when_they_are_first_used(launch: Launch, transport: str) -> None:
    ranks, rounds = 16, 4
    job = launch("-c", CONNECTIONS, ranks=ranks, CORRO_TRANSPORT=transport).check()
    said = [line.split()[-2:] for line in job.output.splitlines() if "streams " in line]
    assert len(said) == ranks, job.output
    for joined, used in said:
        # A listener, and the pairs of each round of joining; then one pair more.
        assert int(joined) <= 1 + 2 * rounds
        assert int(used) <= int(joined) + 1
