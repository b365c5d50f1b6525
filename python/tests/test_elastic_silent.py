"""Ranks of elastic jobs fall silent, or are starved: real processes, with nothing else beside."""

from __future__ import annotations

import re

import pytest
from elastic_jobs import Elastic

pytestmark = pytest.mark.faults


def test_the_others_go_on_without_a_rank_that_a_signal_has_stopped(elastic: Elastic) -> None:
    ran = elastic("steps", 3, {1: (7, "backward")}, "--min-np", "2", SIGNAL="SIGSTOP").check(0, 2)
    assert ran.end(2)["size"] == 2
    assert "rank 1 was stopped by a signal, and does not go on" in ran.job.output


def test_the_others_go_on_without_a_rank_that_hangs(elastic: Elastic) -> None:
    options = ("--min-np", "2", "--hang-timeout", "2s")
    ran = elastic("steps", 3, {1: (7, "backward")}, *options, SIGNAL="HANG").check(0, 2)
    assert ran.end(2)["size"] == 2
    assert re.search("corro: .*wait.* for rank 1", ran.job.output)


def test_ranks_that_are_starved_go_on_together(elastic: Elastic) -> None:
    ran = elastic("starved", 3, {}, "--min-np", "1", BUSY="5").check(0, 1, 2)
    assert [ran.end(rank)["epoch"] for rank in range(3)] == [0, 0, 0]
