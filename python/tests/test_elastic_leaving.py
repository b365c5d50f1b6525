"""Ranks of elastic jobs are asked to end, and leave at the end of a step: real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from elastic_jobs import STEPS, Elastic, Ran

pytestmark = [pytest.mark.faults, pytest.mark.beside]


def test_a_rank_that_is_asked_to_end_leaves_at_the_end_of_a_step(elastic: Elastic) -> None:
    asked = {1: (8, "gate")}
    ran = elastic("steps", 3, asked, "--min-np", "2", SIGNAL="SIGTERM", GATE="8").check(0, 2)
    for rank in (0, 2):
        sizes = {facts["step"]: facts["size"] for facts in ran.of(rank, "step")}
        assert list(sizes) == list(range(STEPS)), "a step was lost or repeated"
        assert (sizes[8], sizes[9]) == (3, 2)
    assert [facts["step"] for facts in ran.of(1, "step")] == list(range(9))
    assert not ran.of(1, "end")
    assert "1 rank has to leave" in ran.job.output


def left(ran: Ran) -> int:
    """Returns the step after which all ranks have left."""
    assert ran.job.code == 75, ran.job.output
    assert "2 ranks save what they have, and end" in ran.job.output
    assert "corro: all ranks have left after a step, as they were asked to" in ran.job.output
    (step,) = {ran.of(rank, "left")[-1]["left"] for rank in range(2)}
    assert isinstance(step, int)
    return step


def again(elastic: Elastic, folder: Path, scenario: str) -> Ran:
    (folder / "said").rename(folder / "said-before")
    return elastic(scenario, 2, {}, "--min-np", "2")


def test_a_job_that_needs_the_rank_ends_with_a_checkpoint(
    elastic_torch: Elastic, tmp_path: Path
) -> None:
    asked = {1: (8, "gate")}
    step = left(elastic_torch("saves", 2, asked, "--min-np", "2", SIGNAL="SIGTERM", GATE="8"))
    assert step == 9
    ran = again(elastic_torch, tmp_path, "saves")
    ran.job.check()
    for rank in range(2):
        assert [facts["loaded"] for facts in ran.of(rank, "loaded")] == [9]
        assert [facts["step"] for facts in ran.of(rank, "step")] == list(range(9, STEPS))
        ran.check_parameters(rank)


def test_a_job_that_is_asked_to_end_ends_with_a_checkpoint(
    elastic_torch: Elastic, tmp_path: Path
) -> None:
    """Clusters send the signal to all processes, those of loaders, too."""
    step = left(elastic_torch("ended", 2, {}, "--min-np", "1", "--max-np", "2", GATE="3"))
    ran = again(elastic_torch, tmp_path, "ended")
    ran.job.check()
    for rank in range(2):
        assert [facts["loaded"] for facts in ran.of(rank, "loaded")] == [step]
        assert ran.end(rank)["steps"] == 13, "each sample once"
