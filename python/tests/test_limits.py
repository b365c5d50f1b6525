"""Jobs on a machine that is short of something: of /dev/shm, of memory, of cores."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from cgroup import memory_cgroup
from conftest import Launch
from forbidden_reads import FORBID

pytestmark = pytest.mark.faults

# Adds small arrays, large ones of private memory, and large ones in an arena.
ADD = """
import os
import numpy
import corro, corro.numpy
from corro import _context

corro.init()
arena = numpy.frombuffer(_context.current().engine.alloc(4 << 20), dtype=numpy.float32)
for data in (numpy.ones(3), numpy.ones(1 << 20, numpy.float32), arena):
    data[:] = corro.rank() + 1
    total = corro.numpy.allreduce(data, op=corro.Sum)
    assert (total == sum(range(1, corro.size() + 1))).all(), total
"""


@pytest.fixture(params=["shm", "tcp"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_full_dev_shm_does_not_matter(launch: Launch, transport: str) -> None:
    own = ["unshare", "--mount", "sh", "-c"]
    mount = "mount -t tmpfs -o size=64k tmpfs /dev/shm"
    tried = subprocess.run([*own, mount], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"cannot mount a /dev/shm of a test's own: {tried.stderr.strip()}")
    fill = "head -c 1M /dev/zero >/dev/shm/full 2>/dev/null"
    full = ADD + "assert os.statvfs('/dev/shm').f_bavail == 0, 'not full'\n"
    inside = [*own, f'{mount}; {fill}; exec "$@"', "sh"]
    launch("-c", full, inside=inside, CORRO_TRANSPORT=transport).check()


def test_more_ranks_than_cores(launch: Launch, transport: str) -> None:
    ranks = 2 * len(os.sched_getaffinity(0)) + 1
    launch("-c", ADD, ranks=ranks, CORRO_TRANSPORT=transport).check()


# Rank 0 has no memory for what an allreduce over messages needs besides its buffers.
NO_HEAP = """
import resource
import numpy
import corro, corro.numpy

corro.init()
data = numpy.ones(30_000_000, numpy.float32)
out = numpy.empty_like(data)
corro.numpy.allreduce(data[:1])
if corro.rank() == 0:
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, 2 * (4096 * pages + (32 << 20),))
for call in ({call}, corro.barrier):
    try:
        call()
    except corro.ResourceExhaustedError as error:
        print(f"told: {{error}}")
"""


@pytest.mark.parametrize(
    "call",
    [
        "lambda: corro.numpy.allreduce(data, out=out, prescale_factor=0.5)",
        "lambda: corro.numpy.allreduce_async(data, out=out, prescale_factor=0.5).wait()",
    ],
)
def test_an_exhausted_heap_is_an_error_on_every_rank(launch: Launch, call: str) -> None:
    job = launch("-c", NO_HEAP.format(call=call), CORRO_TRANSPORT="tcp").check()
    assert len(re.findall(r"told: .*rank 0: out of memory", job.output)) == 4, job.output


def test_an_arena_above_the_memory_limit_is_one_line(launch: Launch) -> None:
    ask = ADD + "_context.current().engine.alloc(1 << 30)\n"
    with memory_cgroup(256 << 20) as inside:
        job = launch("-c", ask, inside=inside)
    assert job.code == 1, job.output
    said = r"ResourceExhaustedError: .* needs 1024 MiB more, but the limit is 256 MiB with .*"
    assert re.search(said, job.output), job.output
    assert "SIG" not in job.output


@pytest.mark.parametrize("ranks", ["0", "012"])
def test_memory_that_may_not_be_read_is_staged(launch: Launch, ranks: str) -> None:
    launch("-c", FORBID + ADD, ranks=3, FORBIDDEN=ranks).check()


# The ranks of SHORT have address space for their own segment, and not for a window of each peer's.
NO_ADDRESSES = """
import os, resource
import numpy
import corro, corro.numpy

def descriptors():
    return len(os.listdir("/proc/self/fd"))

page = os.sysconf("SC_PAGE_SIZE")
if os.environ["CORRO_RANK"] in os.environ["SHORT"]:
    used = page * int(open("/proc/self/statm").read().split()[0])
    machine = page * os.sysconf("SC_PHYS_PAGES")
    resource.setrlimit(resource.RLIMIT_AS, 2 * (used + machine + (64 << 20),))
before = descriptors()
try:
    corro.init()
    corro.numpy.allreduce(numpy.ones(3))
except corro.CorroError as error:
    print(f"told: {type(error).__name__}: {error}", flush=True)
if not corro.is_initialized():
    assert descriptors() == before, (descriptors(), before)
"""


@pytest.mark.parametrize("short", ["01234567", "02"])
def test_segments_that_cannot_be_mapped_are_an_error_on_every_rank(
    launch: Launch, short: str
) -> None:
    job = launch("-c", NO_ADDRESSES, ranks=8, SHORT=short).check()
    told = re.findall(r"\[rank (\d)\] told: (\w+): (.*)", job.output)
    assert len(told) == 8, job.output
    short_of_memory = {rank: text for rank, kind, text in told if kind == "ResourceExhaustedError"}
    assert short_of_memory.keys() <= set(short), job.output
    assert all(
        "map" in text and "bytes of shared memory" in text for text in short_of_memory.values()
    )
    # Others were told of one that had ended by then, of a lack of its own.
    ended = [
        re.search(r"rank (\d) \(pid", text) for _, kind, text in told if kind == "RankLostError"
    ]
    assert len(ended) + len(short_of_memory) == 8, job.output
    assert all(each and each[1] in short_of_memory for each in ended), job.output


# What rank 0 has to see of rank 1's memory is behind 64 MiB of an arena, and it has no address
# space left for so much: what it reads is the arena itself, or where rank 1 stages private memory.
FAR = """
import os, resource
if os.environ["HOSTS"] == "2":
    os.environ["CORRO_HOST_ID"] = f"host-{int(os.environ['CORRO_RANK']) // 2}"
import numpy
import corro, corro.numpy as cn
from corro import _context

corro.init()
arena = numpy.frombuffer(_context.current().engine.alloc(64 << 20), dtype=numpy.float32)
data = arena if os.environ["HOSTS"] == "1" else numpy.ones(1 << 20, numpy.float32)
corro.barrier()
if corro.rank() == 0:
    used = os.sysconf("SC_PAGE_SIZE") * int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, 2 * (used + (64 << 20),))
try:
    cn.allreduce(data, corro.Sum, out=data)
except corro.ResourceExhaustedError as error:
    print(f"told: {error}", flush=True)
"""


@pytest.mark.parametrize("hosts", [1, 2])
def test_memory_of_a_peer_that_cannot_be_mapped_is_an_error_on_every_rank(
    launch: Launch, hosts: int
) -> None:
    job = launch("-c", FAR, ranks=2 * hosts, HOSTS=str(hosts)).check()
    told = re.findall(r"told: (.*)", job.output)
    assert len(told) == 2 * hosts, job.output
    reason = "rank 0 cannot reach the shared memory of rank 1: map 134217728 bytes of shared memory"
    assert any(reason in text for text in told), job.output
