"""Several hosts, as far as one machine can be: ranks that are told so use TCP between them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import netns
import pytest
from conftest import Launch

pytestmark = [pytest.mark.faults, pytest.mark.beside]

TWO_A_HOST = """
import os
import signal
rank = int(os.environ["CORRO_RANK"])
os.environ["CORRO_HOST_ID"] = f"host-{rank // 2}"
import numpy
import corro
import corro.numpy as cn

corro.init()
assert (corro.local_rank(), corro.local_size()) == (rank % 2, 2)
assert (corro.cross_rank(), corro.cross_size()) == (rank // 2, 2)
for count in (1, 1000, 1_000_000):
    assert (cn.allreduce(numpy.full(count, rank + 1.0), corro.Sum) == 10).all()
host = [corro.new_group([0, 1]), corro.new_group([2, 3])][rank // 2]  # Shared memory.
assert cn.allreduce(rank, corro.Sum, group=host) == [1, 5][rank // 2]
assert cn.allgather(numpy.array([rank])).tolist() == [0, 1, 2, 3]
sent = corro._context.current().engine.counter("bytes_sent")
before = cn.allgather(numpy.array([sent]))
cn.allreduce(numpy.ones(1_000_000), group=host)
assert corro._context.current().engine.counter("bytes_sent") - sent < 1000, "not over streams"
"""


def test_two_hosts_of_two_ranks(launch: Launch) -> None:
    launch("-c", TWO_A_HOST, ranks=4).check()


VERBS = """
import numpy
import corro
import corro.numpy as cn

corro.init()
rank, size, ranks = corro.rank(), corro.size(), range(corro.size())
for count in (0, 1, 1000, 70_001, 300_000):
    for dtype in (numpy.float32, numpy.int64, numpy.float16):
        mine = (numpy.arange(count) % 7 + rank).astype(dtype)
        total = sum((numpy.arange(count) % 7 + r).astype(dtype) for r in ranks)
        assert (cn.allreduce(mine, corro.Sum) == total).all()
        assert (cn.broadcast(mine, 1) == mine - rank + 1).all()
        gathered = cn.allgather(mine).reshape(size, count)
        assert all((gathered[r] == mine - rank + r).all() for r in ranks)
        blocks = numpy.tile(mine, size)
        assert (cn.reducescatter(blocks, corro.Sum) == total).all()
        assert (cn.alltoall(blocks)[0].reshape(size, count) == gathered).all()
    cn.barrier()
"""


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("layout", ["001", "000112", "0101", "012"])
def test_every_verb_on_hosts_of_any_size(launch: Launch, transport: str, layout: str) -> None:
    host = f"import os; os.environ['CORRO_HOST_ID'] = {layout!r}[int(os.environ['CORRO_RANK'])]"
    variables = {"CORRO_TRANSPORT": transport, "OMP_NUM_THREADS": "1"}
    launch("-c", f"{host}\n{VERBS}", ranks=len(layout), **variables).check()


# Says how many bytes and messages it has sent for one allreduce of a million f32.
TWO_LEVELS = f"""
import json
{VERBS}
assert "two_level" in corro.world().selection_table()


def sent():
    engine = corro._context.current().engine
    return [engine.counter("bytes_sent"), engine.counter("messages_sent")]


large = numpy.ones(1_000_000, numpy.float32)
before = sent()
cn.allreduce(large, corro.Sum)
print(json.dumps([now - then for now, then in zip(sent(), before)]))
"""


@pytest.mark.parametrize("layout", [[0, 0, 1, 1], [0, 1, 1], [0, 1, 0, 1]])
def test_two_levels_over_a_network(layout: list[int], tmp_path: Path) -> None:
    if refusal := netns.refusal():
        pytest.skip(refusal)
    hosts = netns.Hosts(2)
    ranks: list[subprocess.Popen[str]] = []
    try:
        for rank, host in enumerate(layout):
            place = hosts.environment(tmp_path, rank, layout)
            place |= {"CORRO_DETERMINISTIC": "1", "OMP_NUM_THREADS": "1"}
            command = [*hosts.inside(host), sys.executable, "-c", TWO_LEVELS]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            ranks.append(subprocess.Popen(command, env={**os.environ, **place}, text=True, **pipes))
        ended = [process.communicate(timeout=100) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        hosts.end()
    assert all(process.returncode == 0 for process in ranks), ended
    sent = [json.loads(output) for output, _ in ended]
    for host in (0, 1):
        bytes_sent = sum(sent[rank][0] for rank in range(len(layout)) if layout[rank] == host)
        assert bytes_sent == 4_000_000, "2 (H-1)/H of the vector, and none inside a host"
    pieces, pairs = 16, 2  # Of 256 KiB; of ranks whose shares have something in common.
    assert sum(messages for _, messages in sent) == 2 * 2 * pairs * pieces


def test_ranks_of_one_host_know_it_over_tcp_too(launch: Launch) -> None:
    script = (
        "import corro; corro.init();"
        "assert (corro.local_size(), corro.local_rank()) == (2, corro.rank());"
        "assert corro.cross_size() == 1"
    )
    launch("-c", script, ranks=2, CORRO_TRANSPORT="tcp").check()


def test_a_setting_that_one_rank_has_alone_is_named_before_the_ranks_connect(
    launch: Launch,
) -> None:
    script = (
        "import os;"
        "os.environ['CORRO_TRANSPORT'] = 'tcp' if os.environ['CORRO_RANK'] == '1' else 'shm';"
        "import corro; corro.init()"
    )
    job = launch("-c", script, ranks=3)
    assert job.code == 1, job.output
    assert (
        "CORRO_TRANSPORT=tcp on rank 1, CORRO_TRANSPORT=shm on rank 0: "
        "expected the same on all ranks" in job.output
    )
    assert "set CORRO_TRANSPORT to what is expected, or unset it" in job.output


def test_a_rank_whose_others_never_come_to_torchs_store_gives_up_at_the_deadline() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    done = subprocess.run(
        [sys.executable, "-c", "import corro; corro.init()"],
        env={**os.environ, **place, "RANK": "0", "WORLD_SIZE": "2", "CORRO_TIMEOUT": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("corro.TimeoutError: corro.init: torch's store at 127.0.0.1:")
    assert "within 1 s: are all 2 ranks running?" in last


def test_an_interrupt_ends_the_wait_for_ranks_that_do_not_come(tmp_path: Path) -> None:
    meet = tmp_path / "meet"
    place = {"CORRO_RANK": "0", "CORRO_SIZE": "2", "CORRO_BOOTSTRAP": f"dir:{meet}"}
    script = (
        "import signal, corro; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "corro.init(timeout=1000)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, **place},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not meet.exists() or not list(meet.iterdir()):  # It says where it is, and waits.
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=100)
    finally:
        process.kill()
        process.wait()
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
