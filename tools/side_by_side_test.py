"""Which jobs run side by side."""

from __future__ import annotations

import threading
import time
from functools import partial

from side_by_side import Job, fits, run_side_by_side


def job(processors: float) -> Job[None]:
    return Job(processors, lambda: None)


def test_there_are_processors_for_all_that_run() -> None:
    assert fits(job(9), [], 2), "alone, whatever it needs"
    assert fits(job(1), [job(1)], 2)
    assert not fits(job(1), [job(1), job(1)], 2)
    assert fits(job(0.1), [job(1), job(1.3)], 2), "two averages seldom meet"
    assert not fits(job(0.1), [job(1), job(1.45)], 2)
    assert fits(job(0), [job(0)] * 5, 2)
    assert not fits(job(0), [job(0)] * 6, 2), "memory"


def test_everything_runs_and_never_more_than_fits() -> None:
    lock, running, seen = threading.Lock(), list[float](), list[float]()

    def work(number: int, processors: float) -> int:
        with lock:
            running.append(processors)
            seen.append(sum(running))
        time.sleep(0.002)
        with lock:
            running.remove(processors)
        return number

    needs = [1.9, 0.1, 0.4, 1.0, 0.9, 3.0, 0.0, 0.3] * 4
    jobs = [Job(need, partial(work, number, need)) for number, need in enumerate(needs)]
    assert run_side_by_side(jobs, 2) == list(range(len(jobs)))
    assert max(total for total in seen if total != 3.0) <= 2.5 + 1e-9
    assert len(seen) == len(jobs)


def test_it_is_told_when_none_runs() -> None:
    seen: list[str] = []
    jobs = [Job(need, partial(seen.append, f"{need}")) for need in (2.0, 2.5, 3.0)]
    run_side_by_side(jobs, 2, idle=lambda: seen.append("none"))
    assert seen == ["none", "2.0", "none", "2.5", "none", "3.0"]


def test_a_short_one_passes_one_that_does_not_fit() -> None:
    gate = threading.Event()
    order: list[str] = []

    def work(name: str) -> None:
        if name == "first":
            gate.wait(10)
        order.append(name)
        if name == "small":
            gate.set()

    needs = {"first": 1.5, "too large": 1.5, "small": 0.2}
    run_side_by_side([Job(need, partial(work, name)) for name, need in needs.items()], 2)
    assert order == ["small", "first", "too large"]
