"""Elastic jobs of tests: scenarios of a worker, and what their processes have said."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Finished, Launch
from histories import Applied, Event, Taken
from numpy_training import parameters_after

STEPS = 16

Facts = dict[str, Any]


@functools.cache
def after_with_numpy() -> list[float]:
    return parameters_after(STEPS)


@functools.cache
def after_with_torch(optimizer: str = "sgd") -> list[float]:
    import training

    model = training.network()
    training.losses(model, getattr(training, optimizer)(model), STEPS, shared=False)
    return [value for param in model.parameters() for value in param.flatten().tolist()]


@dataclass(frozen=True)
class Worker:
    """A program with scenarios."""

    file: str
    parameters_of_one_process: Callable[[], list[float]]  # After all steps.


WITH_NUMPY = Worker("elastic_worker.py", after_with_numpy)
WITH_TORCH = Worker("elastic_torch_worker.py", after_with_torch)
SHARDED = Worker("elastic_sharded_worker.py", functools.partial(after_with_torch, "adam"))


@dataclass(frozen=True)
class Ran:
    """A job that has ended, and what each of its processes has said, by its first rank."""

    worker: Worker
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
        for rank in survivors:
            self.check_parameters(rank)
        assert len({self.end(rank)["digest"] for rank in survivors}) == 1, "replicas differ"
        applied = [[facts["step"] for facts in self.of(rank, "step")] for rank in survivors]
        for own in applied:
            assert own == sorted(set(own)), "a step was applied twice"
        # Who was behind has got a step from another rank.
        assert sorted(set().union(*applied)) == list(range(STEPS))
        return self

    def check_parameters(self, rank: int) -> None:
        expected = self.worker.parameters_of_one_process()
        assert self.end(rank)["parameters"] == pytest.approx(expected, abs=1e-5)


Elastic = Callable[..., Ran]


def starter(launch: Launch, tmp_path: Path, worker: Worker) -> Elastic:
    """Returns what runs a scenario; `kills`: by rank, in which step and where it kills itself."""

    def run(
        scenario: str,
        ranks: int,
        kills: dict[int, tuple[int, str]],
        *options: str,
        **env: str,
    ) -> Ran:
        folder = tmp_path / "said"
        folder.mkdir()
        program = Path(__file__).with_name(worker.file)
        arguments = (str(program), scenario, str(folder), str(STEPS))
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
        return Ran(
            worker, job, said, [facts for _, facts in sorted(joined, key=lambda one: one[0])]
        )

    return run


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
