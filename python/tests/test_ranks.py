"""Runs the tests under ranks/ inside of jobs, as a user's program would run."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import HERE, Launch

FILES = sorted(path.name for path in (HERE / "ranks").glob("test_*.py"))
INSIDE = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=120")


@pytest.mark.torch22
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_in_ranks(launch: Launch, file: str, ranks: int) -> None:
    launch(*INSIDE, str(HERE / "ranks" / file), ranks=ranks, CORRO_TEST_IN_RANKS="1").check()


@pytest.mark.parametrize("ranks", [2, 4])
def test_torch_back_end_under_torchrun(launch: Launch, ranks: int) -> None:
    path = str(HERE / "ranks" / "test_process_group.py")
    launch(*INSIDE, path, ranks=ranks, launcher="torchrun", CORRO_TEST_IN_RANKS="1").check()


def test_verbs_over_tcp(launch: Launch) -> None:
    path = str(HERE / "ranks" / "test_numpy.py")
    launch(*INSIDE, path, ranks=3, CORRO_TRANSPORT="tcp", CORRO_TEST_IN_RANKS="1").check()


# Leaves with works in flight on the world and on a group, and without a goodbye.
NO_GOODBYE = """
import torch
import torch.distributed as dist

dist.init_process_group("corro")
pair = dist.new_group([0, 1])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
model(torch.ones(3, 4)).sum().backward()
works = [dist.all_reduce(torch.ones(1 << 16), group=pair, async_op=True) for _ in range(4)]
works[0].wait()
print("last line")
"""


@pytest.mark.torch22
@pytest.mark.parametrize("launcher", ["corro", "torchrun"])
def test_no_crash_at_exit_without_destroy_process_group(
    launch: Launch, launcher: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(NO_GOODBYE)
    job = launch(str(script), launcher=launcher).check()
    assert job.output.count("last line") == 2
    assert "Traceback" not in job.output
    assert "terminate" not in job.output
