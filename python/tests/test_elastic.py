"""Ranks of elastic jobs are killed, and the others go on: real processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch.nn.functional as F
from conftest import Finished, Launch
from histories import Applied, Event, Taken, mistakes
from training import SAMPLES, examples, losses, network, sgd

from corro.elastic._permutation import Permutation

pytestmark = pytest.mark.faults
WORKER = Path(__file__).with_name("elastic_worker.py")
STEPS = 16

Facts = dict[str, Any]


@dataclass(frozen=True)
class Ran:
    """A job that has ended, and what each of its processes has said, by its first rank."""

    job: Finished
    said: dict[int, list[Facts]]
    joiners: list[list[Facts]]  # Of processes that came later, in the order of their places.

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
        joined: list[tuple[int, list[Facts]]] = []
        for path in folder.iterdir():
            rank = int(path.stem.partition("-")[0])
            facts = [json.loads(line) for line in path.read_text().splitlines()]
            if facts and "joins" in facts[0]:
                joined.append((rank, facts))
                continue
            assert rank not in said, "a rank was started again"
            said[rank] = facts
        return Ran(job, said, [facts for _, facts in sorted(joined, key=lambda one: one[0])])

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


def history(ran: Ran) -> list[Event]:
    """Returns what all members have noted of samples; each is named by its first rank.

    Those that joined are 100, 101, ...
    """
    events: list[Event] = []
    for member, said in [*ran.said.items(), *enumerate(ran.joiners, start=100)]:
        for facts in said:
            if "taken" in facts:
                events.append(
                    Taken(
                        member=member,
                        epoch=facts["epoch"],
                        rank=facts["rank"],
                        ranks=facts["size"],
                        step=facts["of_step"],
                        data_epoch=facts["data_epoch"],
                        samples=tuple(facts["taken"]),
                        weight=facts["weight"],
                    )
                )
            elif "step" in facts:
                events.append(Applied(member=member, epoch=facts["epoch"], step=facts["step"]))
    return events


@pytest.mark.parametrize("place", ["forward", "backward", "step", "between"])
def test_each_sample_comes_once(elastic: Elastic, place: str) -> None:
    kills = {1: (5, place), 3: (12, "backward")}
    options = json.dumps({"batch_size": 4, "num_workers": 2 if place == "step" else 0})
    ran = elastic("samples", 4, kills, "--min-np", "2", OPTIONS=options)
    ran.job.check()
    assert mistakes(history(ran), SAMPLES, 2) == []
    assert ran.end(0)["digest"] == ran.end(2)["digest"]


def test_the_last_step_may_have_fewer_samples_than_ranks(elastic: Elastic) -> None:
    options = json.dumps({"batch_size": 2, "global_batch": 7})  # 100 = 14 * 7 + 2.
    ran = elastic("samples", 4, {}, OPTIONS=options)
    ran.job.check()
    assert mistakes(history(ran), SAMPLES, 2) == []
    assert len({ran.end(rank)["digest"] for rank in range(4)}) == 1
    assert ran.end(0)["parameters"] == pytest.approx(parameters_of_two_data_epochs(7), abs=1e-5)


@pytest.mark.parametrize("ranks", [3, 4])
def test_a_global_batch_stays_that_of_one_process(elastic: Elastic, ranks: int) -> None:
    kills = {1: (3, "backward"), 2: (9, "step")}
    options = json.dumps({"batch_size": 4, "global_batch": 12})
    ran = elastic("samples", ranks, kills, "--min-np", "1", OPTIONS=options)
    ran.job.check()
    assert mistakes(history(ran), SAMPLES, 2) == []
    assert ran.end(0)["steps"] == 2 * 9
    assert ran.end(0)["parameters"] == pytest.approx(parameters_of_two_data_epochs(12), abs=1e-5)


def parameters_of_two_data_epochs(batch_size: int) -> list[float]:
    """What one process has after two data epochs in the order of an ElasticSampler."""
    x, y = examples()
    model = network()
    optimizer = sgd(model)
    for data_epoch in range(2):
        order = Permutation(SAMPLES, 5, data_epoch)
        for first in range(0, SAMPLES, batch_size):
            taken = order.indices(range(SAMPLES)[first : first + batch_size])
            optimizer.zero_grad()
            F.mse_loss(model(x[taken]), y[taken]).backward()
            optimizer.step()
    return [value for param in model.parameters() for value in param.flatten().tolist()]


@pytest.mark.parametrize("place", ["backward", "between"])
def test_each_sample_of_streams_comes_once(elastic: Elastic, place: str) -> None:
    kills = {0: (4, place), 3: (9, "backward")}
    ran = elastic("streams", 4, kills, "--min-np", "2")
    ran.job.check()
    assert mistakes(history(ran), SAMPLES, 2) == []
    assert ran.end(1)["digest"] == ran.end(2)["digest"]


@pytest.mark.parametrize("scenario", ["samples", "streams"])
def test_each_sample_comes_once_where_a_rank_joins(elastic: Elastic, scenario: str) -> None:
    options = json.dumps({"batch_size": 4})
    ran = elastic(scenario, 2, {}, "--max-np", "3", GATE="5", OPTIONS=options)
    ran.job.check()
    events = history(ran)
    assert mistakes(events, SAMPLES, 2) == []
    assert next(event.step for event in events if event.member == 100) == 6
    assert ran.end(0)["digest"] == ran.end(1)["digest"]


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


# -- ranks that join ------------------------------------------------------------------------------


def check_joined(ran: Ran, first: int, *survivors: int) -> None:
    """One rank has joined after so many steps, and all have done each step once."""
    ran.check(*survivors)
    (joiner,) = ran.joiners
    steps = [facts["step"] for facts in joiner if "step" in facts]
    assert steps == list(range(first, STEPS))
    (end,) = (facts for facts in joiner if "end" in facts)
    assert end["digest"] == ran.end(survivors[0])["digest"], "replicas differ"
    for rank in survivors:
        done = [facts["step"] for facts in ran.of(rank, "step")]
        assert done == list(range(STEPS)), "a step was lost or repeated"
        sizes = {facts["step"]: facts["size"] for facts in ran.of(rank, "step")}
        assert all(sizes[step] == sizes[first] for step in range(first, STEPS))
        assert sizes[first] == sizes[first - 1] + 1


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("scenario", ["steps", "commits", "asks"])
def test_a_rank_joins_at_the_end_of_a_step(elastic: Elastic, scenario: str, ranks: int) -> None:
    ran = elastic(scenario, ranks, {}, "--max-np", str(ranks + 1), GATE="5")
    check_joined(ran, 6, *range(ranks))
    assert f"{ranks + 1} ranks go on, 1 of them new" in ran.job.output


def test_a_killed_rank_is_replaced(elastic: Elastic) -> None:
    options = ("--min-np", "2", "--max-np", "3")
    ran = elastic("steps", 3, {1: (3, "backward")}, *options, GATE="9")
    check_joined(ran, 10, 0, 2)
    (joiner,) = ran.joiners
    assert {facts["rank"] for facts in joiner if "step" in facts} == {2}, "it comes last"


def test_the_others_wait_where_too_few_are_left(elastic: Elastic) -> None:
    ran = elastic("steps", 2, {1: (7, "backward")}, "--max-np", "2").check(0)
    assert {facts["size"] for facts in ran.of(0, "step")} == {2}
    (joiner,) = ran.joiners
    assert [facts["step"] for facts in joiner if "step" in facts] == list(range(7, STEPS))


def test_a_rank_joins_a_job_that_saves_checkpoints(elastic: Elastic) -> None:
    ran = elastic("saves", 2, {}, "--max-np", "3", GATE="5")
    check_joined(ran, 6, 0, 1)
    assert ran.end(0)["saved"] == STEPS


def test_ranks_join_together(elastic: Elastic) -> None:
    ran = elastic("steps", 1, {}, "--max-np", "3", GATE="5").check(0)
    assert len(ran.joiners) == 2
    sizes = {facts["step"]: facts["size"] for facts in ran.of(0, "step")}
    assert sizes[5] == 1
    assert sizes[STEPS - 1] == 3 or ran.end(0)["epoch"] == 1, "the other one came too late"


def test_one_that_fails_before_it_joins_is_started_again(elastic: Elastic) -> None:
    ran = elastic("fails_once", 2, {}, "--max-np", "3", GATE="5")
    assert "rank 2 ended with status 3 before it had joined" in ran.job.output
    ran.joiners.remove(next(facts for facts in ran.joiners if len(facts) == 1))
    check_joined(ran, 6, 0, 1)


def test_one_that_communicates_before_it_trains_harms_nobody(elastic: Elastic) -> None:
    ran = elastic("talks", 2, {}, "--max-np", "3").check(0, 1)
    assert "communicate inside of the function that corro.elastic.run calls" in ran.job.output
    assert all(ran.end(rank)["epoch"] == 0 for rank in range(2))


def test_ranks_join_a_script_of_horovods_at_a_commit(elastic: Elastic) -> None:
    check_joined(elastic("horovods_grow", 2, {}, "--max-np", "3", GATE="5"), 8, 0, 1)


# -- hosts that are discovered --------------------------------------------------------------------


def discovering(tmp_path: Path, before: str, after: str) -> tuple[str, str]:
    """Options for hosts that change once ranks have come to their gate."""
    command = f"if test -e {tmp_path}/gate; then {after}; else {before}; fi"
    return "--host-discovery", command


def test_a_slot_that_is_discovered_gets_a_rank(elastic: Elastic, tmp_path: Path) -> None:
    options = discovering(tmp_path, "echo localhost:2", "echo localhost:3")
    check_joined(elastic("steps", 2, {}, *options, "--max-np", "3", GATE="5"), 6, 0, 1)


def test_a_rank_leaves_a_slot_that_is_taken_away(elastic: Elastic, tmp_path: Path) -> None:
    options = discovering(tmp_path, "echo localhost:3", "echo localhost:2")
    ran = elastic("steps", 3, {}, *options, "--min-np", "1", GATE="5").check(0, 1)
    for rank in (0, 1):
        steps = {facts["step"]: facts["size"] for facts in ran.of(rank, "step")}
        assert list(steps) == list(range(STEPS))
        assert (steps[5], steps[6]) == (3, 2)
    assert not ran.of(2, "end")
    assert "1 rank has to leave" in ran.job.output


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo no such region >&2; exit 4", "it ended with status 4: no such region"),
        ("echo {}", "not a host"),
        ("true", "has no host"),
    ],
)
def test_a_discovery_that_fails_harms_nobody(
    elastic: Elastic, tmp_path: Path, command: str, text: str
) -> None:
    options = discovering(tmp_path, "echo localhost:2", f"echo >> {tmp_path}/asked; {command}")
    ran = elastic("asked", 2, {}, *options, "--min-np", "1").check(0, 1)
    assert ran.end(0)["epoch"] == 0
    assert ran.job.output.count(text) == 1


# -- jobs without a change ------------------------------------------------------------------------


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
