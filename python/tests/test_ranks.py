"""Runs the tests under ranks/ inside of jobs, as a user's program would run."""

from __future__ import annotations

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
