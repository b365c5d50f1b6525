"""Runs jobs side by side while there are processors for them.

A job says how many processors it keeps busy, on average. Most suites wait most of the time: for a
silence that is ten seconds long, or for processes that load Python. Several of those run beside one
that computes, and two that compute share two processors. The next one is the first that fits, so a
long one that does not fit yet does not keep short ones waiting; what comes first in the list is
considered first. A job that needs more than there is runs when no other does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

# A processor may be asked for by so much more than it has: no two averages meet all the time.
SLACK = 1.25
# Jobs that wait need memory, too.
MOST_A_PROCESSOR = 3


@dataclass(frozen=True)
class Job(Generic[T]):
    processors: float
    run: Callable[[], T]


def fits(job: Job[T], running: Sequence[Job[T]], processors: int) -> bool:
    """Returns whether the job can begin beside those that run."""
    if not running:
        return True
    load = sum(each.processors for each in running) + job.processors
    return len(running) < MOST_A_PROCESSOR * processors and load <= SLACK * processors


def run_side_by_side(
    jobs: Sequence[Job[T]], processors: int, idle: Callable[[], None] = lambda: None
) -> list[T]:
    """Runs them all, each in a thread; returns what they returned, in the order of the jobs.

    Calls `idle` whenever none runs and another one is to begin.
    """
    waiting = list(range(len(jobs)))
    running: dict[Future[T], int] = {}
    done: dict[int, T] = {}
    with ThreadPoolExecutor(MOST_A_PROCESSOR * processors) as pool:
        while waiting or running:
            if not running:
                idle()
            beside = [jobs[index] for index in running.values()]
            index = next((each for each in waiting if fits(jobs[each], beside, processors)), None)
            if index is not None:
                waiting.remove(index)
                running[pool.submit(jobs[index].run)] = index
                continue
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                done[running.pop(ended)] = ended.result()
    return [done[index] for index in range(len(jobs))]
