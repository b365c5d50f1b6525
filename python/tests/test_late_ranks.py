"""A rank that is late for half a minute; what runs beside it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_jobs import VICTIM, Job

pytestmark = [pytest.mark.faults, pytest.mark.beside]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.end()


def test_a_rank_stopped_inside_of_a_large_operation_is_late_and_not_lost(job: Job) -> None:
    """Its sockets are full and take nothing for longer than a connection might be given."""
    job.start("stopped_inside", 3, CORRO_TRANSPORT="tcp", CORRO_TIMEOUT="30")
    job.let_victim_go()
    for rank in (0, 2):
        facts = job.facts(rank)
        assert facts["error"] == "TimeoutError", facts
        assert facts["culprit"] == VICTIM, facts
