"""Ranks of elastic jobs are killed, and the others go on: real processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Finished, Launch
from training import losses, network, sgd

pytestmark = pytest.mark.faults
WORKER = Path(__file__).with_name("elastic_worker.py")
STEPS = 16

Facts = dict[str, Any]


@dataclass(frozen=True)
class Ran:
    """A job that has ended, and what each of its processes has said, by its first rank."""

    job: Finished
    said: dict[int, list[Facts]]

    def of(self, rank: int, key: str) -> list[Facts]:
        return [facts for facts in self.said[rank] if key in facts]

    def end(self, rank: int) -> Facts:
        ends = self.of(rank, "end")
        assert len(ends) == 1, (self.said[rank], self.job.output)
        return ends[0]

    def check(self, *survivors: int) -> Ran:
        """All survivors have done all steps once, and have what one process would have."""
        self.job.check()
        expected = parameters_of_one_process()
        for rank in survivors:
            assert self.end(rank)["parameters"] == pytest.approx(expected, abs=1e-5)
        assert len({self.end(rank)["digest"] for rank in survivors}) == 1, "replicas differ"
        applied = [[facts["step"] for facts in self.of(rank, "step")] for rank in survivors]
        for own in applied:
            assert own == sorted(set(own)), "a step was applied twice"
        # Who was behind has got a step from another rank.
        assert sorted(set().union(*applied)) == list(range(STEPS))
        return self


def parameters_of_one_process() -> list[float]:
    model = network()
    losses(model, sgd(model), STEPS, shared=False)
    return [value for param in model.parameters() for value in param.flatten().tolist()]


Elastic = Callable[..., Ran]


@pytest.fixture
def elastic(launch: Launch, tmp_path: Path) -> Elastic:
    """Runs a scenario; `kills`: by rank, the step and the place where it kills itself."""

    def run(
        scenario: str,
        ranks: int,
        kills: dict[int, tuple[int, str]],
        *options: str,
        **env: str,
    ) -> Ran:
        folder = tmp_path / "said"
        folder.mkdir()
        arguments = (str(WORKER), scenario, str(folder), str(STEPS))
        told = {str(rank): kill for rank, kill in kills.items()}
        job = launch(*arguments, ranks=ranks, options=options, KILLS=json.dumps(told), **env)
        said: dict[int, list[Facts]] = {}
        for path in folder.iterdir():
            rank = int(path.stem.partition("-")[0])
            assert rank not in said, "a rank was started again"
            said[rank] = [json.loads(line) for line in path.read_text().splitlines()]
        return Ran(job, said)

    return run


@pytest.mark.parametrize(
    ("victim", "place"),
    [(0, "backward"), (0, "between"), (1, "forward"), (1, "backward"), (1, "step")],
)
def test_the_others_go_on_without_a_killed_rank(elastic: Elastic, victim: int, place: str) -> None:
    survivors = [rank for rank in range(3) if rank != victim]
    ran = elastic("steps", 3, {victim: (7, place)}, "--min-np", "2").check(*survivors)
    for number, rank in enumerate(survivors):
        end, (reset,) = ran.end(rank), ran.of(rank, "reset")
        assert (end["result"], end["epoch"]) == ("returned", 1)
        assert (end["rank"], end["size"]) == (reset["rank"], reset["size"]) == (number, 2)
        # Nothing is repeated from further back than the step in which the rank was killed.
        sizes = {facts["step"]: facts["size"] for facts in ran.of(rank, "step")}
        assert all(size == 3 for step, size in sizes.items() if step < 7)
        assert all(size == 2 for step, size in sizes.items() if step > 7)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_ranks_are_lost_until_one_is_left(elastic: Elastic, transport: str) -> None:
    kills = {0: (3, "backward"), 2: (9, "forward")}
    ran = elastic("steps", 3, kills, "--min-np", "1", CORRO_TRANSPORT=transport).check(1)
    assert [facts["size"] for facts in ran.of(1, "reset")] == [2, 1]
    assert ran.end(1)["epoch"] == 2


def test_two_ranks_are_lost_at_once(elastic: Elastic) -> None:
    kills = {1: (5, "backward"), 2: (5, "forward")}
    ran = elastic("steps", 4, kills, "--min-np", "2").check(0, 3)
    assert ran.end(3)["size"] == 2


def test_a_rank_is_lost_before_the_first_epoch_has_begun(elastic: Elastic) -> None:
    ran = elastic("steps", 3, {1: (-1, "start")}, "--min-np", "2").check(0, 2)
    assert (ran.end(2)["rank"], ran.end(2)["size"]) == (1, 2)
    assert not ran.of(2, "reset")


def test_a_rank_is_lost_while_the_next_epoch_begins(elastic: Elastic) -> None:
    kills = {1: (5, "backward"), 2: (-1, "reset")}
    ran = elastic("steps", 4, kills, "--min-np", "2").check(0, 3)
    assert ran.end(0)["size"] == 2


def test_a_rank_is_lost_while_others_join_the_next_epoch(elastic: Elastic) -> None:
    kills = {1: (5, "backward"), 2: (-1, "join")}
    ran = elastic("joining", 4, kills, "--min-np", "2").check(0, 3)
    assert ran.end(0)["size"] == 2


def test_the_others_go_on_without_a_rank_that_a_signal_has_stopped(elastic: Elastic) -> None:
    ran = elastic("steps", 3, {1: (7, "backward")}, "--min-np", "2", SIGNAL="SIGSTOP").check(0, 2)
    assert ran.end(2)["size"] == 2
    assert "rank 1 was stopped by a signal, and does not go on" in ran.job.output


def test_the_job_ends_when_too_few_are_left(elastic: Elastic) -> None:
    kills = {1: (5, "backward"), 2: (9, "step")}
    ran = elastic("steps", 3, kills, "--min-np", "2")
    assert ran.job.code == 128 + 9
    assert "rank 2 was killed by SIGKILL: 1 rank is left, at least 2 are needed" in ran.job.output
    assert not ran.of(0, "end")


@pytest.mark.parametrize("place", ["pass 0", "pass 1"])
def test_a_sum_over_passes_begins_anew(elastic: Elastic, place: str) -> None:
    elastic("two_passes", 3, {1: (7, place)}, "--min-np", "2").check(0, 2)


@pytest.mark.parametrize("late", [0, 2])
def test_a_step_that_one_rank_has_applied_is_not_lost(elastic: Elastic, late: int) -> None:
    ran = elastic("behind", 3, {1: (7, "behind")}, "--min-np", "2", LATE=str(late)).check(0, 2)
    for rank in (0, 2):
        steps = {facts["step"]: facts["size"] for facts in ran.of(rank, "step")}
        assert steps.get(7) == (None if rank == late else 3)


def test_restore_undoes_what_a_failed_step_has_changed(elastic: Elastic) -> None:
    ran = elastic("commits", 3, {1: (7, "backward")}, "--min-np", "2").check(0, 2)
    for rank in (0, 2):
        assert ran.end(rank)["begun"] == STEPS
        assert all(facts["begun"] == facts["step"] + 1 for facts in ran.of(rank, "step"))


def test_groups_of_an_earlier_epoch_say_so(elastic: Elastic) -> None:
    ran = elastic("groups", 3, {1: (7, "forward")}, "--min-np", "2").check(0, 2)
    for rank in (0, 2):
        errors = ran.end(rank)["errors"]
        assert len(errors) == 2
        assert all("[0, 1, 2] is of an earlier epoch" in error for error in errors)
        assert ran.end(rank)["total"] == 2


def test_samples_are_divided_anew(elastic: Elastic) -> None:
    ran = elastic("samples", 3, {1: (5, "backward")}, "--min-np", "2")
    ran.job.check()
    taken: dict[tuple[int, int], int] = {}  # How often, by data epoch and sample.
    for rank in (0, 1, 2):
        for facts in ran.of(rank, "samples"):
            for sample in facts["samples"]:
                key = (facts["data_epoch"], sample)
                taken[key] = taken.get(key, 0) + 1
    for data_epoch in range(2):
        counts = [taken.get((data_epoch, sample), 0) for sample in range(192)]
        assert counts == [1] * 192, "a sample was lost, or processed twice"
    assert ran.end(0)["digest"] == ran.end(2)["digest"]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_script_of_horovods_goes_back_to_its_last_commit(elastic: Elastic, victim: int) -> None:
    survivors = [rank for rank in range(3) if rank != victim]
    ran = elastic("horovods", 3, {victim: (10, "backward")}, "--min-np", "2")
    ran.job.check()
    for number, rank in enumerate(survivors):
        end, (reset,) = ran.end(rank), ran.of(rank, "reset")
        assert (reset["rank"], reset["size"], end["total"]) == (number, 2, 2)
        assert (end["begun"], end["set_of_two"]) == (STEPS, None)
        steps = [facts["step"] for facts in ran.of(rank, "step")]
        assert steps == [*range(10), *range(8, STEPS)]
        assert end["parameters"] == pytest.approx(parameters_of_one_process(), abs=1e-5)
    assert len({ran.end(rank)["digest"] for rank in survivors}) == 1


@pytest.mark.parametrize("options", [("--min-np", "2"), ()])
def test_an_undisturbed_job_stays_in_its_first_epoch(
    elastic: Elastic, options: tuple[str, ...]
) -> None:
    ran = elastic("steps", 3, {}, *options).check(0, 1, 2)
    assert all(ran.end(rank)["epoch"] == 0 and not ran.of(rank, "reset") for rank in range(3))


def test_a_mistake_of_the_users_is_raised(elastic: Elastic) -> None:
    ran = elastic("wrong", 2, {}, "--min-np", "1")
    ran.job.check()
    for rank in (0, 1):
        (facts,) = ran.of(rank, "error")
        assert "allreduce" in facts["error"]
        assert (facts["epoch"], facts["notes"]) == (0, [])


def test_a_job_that_is_not_elastic_ends_as_others_do(elastic: Elastic) -> None:
    ran = elastic("steps", 3, {1: (7, "backward")})
    assert ran.job.code == 128 + 9
    assert "rank 1 failed" in ran.job.output
