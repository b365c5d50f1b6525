"""Several hosts, as far as one machine can be: ranks that are told so use TCP between them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Launch

pytestmark = pytest.mark.faults

TWO_A_HOST = """
import os
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


@pytest.mark.parametrize(("launcher", "variable"), [("corro", "CORRO_RANK"), ("torchrun", "RANK")])
def test_a_setting_that_one_rank_has_alone_is_named_before_the_ranks_connect(
    launch: Launch, tmp_path: Path, launcher: str, variable: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        f"os.environ['CORRO_TRANSPORT'] = 'tcp' if os.environ['{variable}'] == '1' else 'shm'\n"
        "import corro\n"
        "corro.init()\n"
    )
    job = launch(str(script), ranks=2, launcher=launcher)
    assert job.code == 1, job.output
    assert (
        "CORRO_TRANSPORT=tcp on rank 1, CORRO_TRANSPORT=shm on rank 0: "
        "expected the same on all ranks" in job.output
    )
    if launcher == "corro":
        assert "set CORRO_TRANSPORT to what is expected, or unset it" in job.output
