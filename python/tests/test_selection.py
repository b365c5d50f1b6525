"""The selection table in real jobs: measured over sockets, the same on every rank, and chosen."""

from __future__ import annotations

import pytest
from conftest import Launch

TABLES = """
import numpy
import corro
import corro.numpy as cn

corro.init()
table = corro.world().selection_table()
text = numpy.frombuffer(table.ljust(4096).encode(), dtype=numpy.uint8)
tables = {bytes(row).decode().rstrip() for row in cn.allgather(text).reshape(corro.size(), -1)}
assert len(tables) == 1, tables
assert cn.allreduce(numpy.ones(100_000), corro.Sum)[-1] == corro.size()
if corro.rank() == 0:
    print(table)
"""


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_link_is_measured_and_all_ranks_have_one_table(launch: Launch, hosts: int) -> None:
    place = (
        "import os; os.environ['CORRO_HOST_ID'] = f'host-{int(os.environ[\"CORRO_RANK\"]) // 2}'"
    )
    script = f"{place}\n{TABLES}" if hosts == 2 else TABLES
    variables = {"CORRO_DETERMINISTIC": "0"} | ({} if hosts == 2 else {"CORRO_TRANSPORT": "tcp"})
    output = launch("-c", script, ranks=3, **variables).check().output
    ranks = "3 ranks" if hosts == 1 else "3 ranks on 2 hosts"
    assert f"{ranks} that exchange messages: latency " in output
    # A busy machine may give times that no link has.
    assert "(measured when the job started)" in output or "1500 MB/s (assumed)" in output


def test_deterministic_jobs_measure_nothing(launch: Launch) -> None:
    variables = {"CORRO_TRANSPORT": "tcp", "CORRO_DETERMINISTIC": "1"}
    first = launch("-c", TABLES, ranks=2, **variables).check().output
    assert "latency 20.0 us, overhead 1.00 us a message, 1500 MB/s (assumed)" in first


def test_the_rules_of_rank_0_count_on_every_rank(launch: Launch) -> None:
    script = (
        "import os\n"
        "if os.environ['CORRO_RANK'] != '0': os.environ['CORRO_ALGORITHMS'] = 'allreduce=one_shot'"
    )
    rules = "allreduce=ring,barrier=binomial"
    output = launch(
        "-c", f"{script}\n{TABLES}", ranks=3, CORRO_TRANSPORT="tcp", CORRO_ALGORITHMS=rules
    ).check()
    rows = [line.split() for line in output.output.splitlines() if "CORRO_ALGORITHMS" in line]
    assert [row[row.index("allreduce") :][2] for row in rows if "allreduce" in row] == ["ring"]
    assert len(rows) == 2, output.output


def test_ranks_that_share_memory_have_paths_instead(launch: Launch) -> None:
    output = launch("-c", TABLES, ranks=2).check().output
    assert "2 ranks that share memory: up to 32 bytes in a line" in output


def test_a_wrong_rule_ends_the_job_before_a_rank_starts(launch: Launch) -> None:
    job = launch("-c", TABLES, ranks=2, CORRO_ALGORITHMS="allreduce=fast")
    assert job.code == 2
    assert "expected one of the algorithms of allreduce: one_shot, two_shot, ring" in job.output
