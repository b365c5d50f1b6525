"""Several hosts, as far as one machine can be: ranks that are told so use TCP between them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Launch

pytestmark = pytest.mark.faults

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
