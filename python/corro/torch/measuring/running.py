"""Runs plans for real: each plan's graph is loaded, and every rank does its stage of it."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import time
from collections.abc import Callable
from contextlib import suppress
from math import prod

import corro
import corro.torch as ct
from corro.graph import Plan
from corro.torch.measuring.candidates import Candidate
from corro.torch.measuring.chain import Chain
from corro.torch.measuring.stages import Stage

MakeStage = Callable[[Candidate, int, int], Stage]
"""Of layers [begin, end)."""


def run(candidate: Candidate, chain: Chain, make: MakeStage, steps: int) -> None:
    """Runs a plan for so many steps after a first one, and notes what they took; on all ranks.

    A step's time is that of its slowest rank. Memory is the most that this process had in memory
    during the steps, beyond what it has without the plan.
    """
    assert candidate.planned is not None
    number = corro.rank() // candidate.data
    stage = candidate.planned.decisions.stages[number]
    gc.collect()
    _give_back()
    before = _resident("VmRSS")
    work = make(candidate, stage.first_layer, stage.end_layer)
    groups = [
        corro.new_group(range(first, first + candidate.data))
        for first in range(0, corro.size(), candidate.data)
    ]
    graph = runnable(candidate.planned.graph, candidate, chain)
    mine = []
    gc.collect()
    _give_back()
    can_see = _forget_peak()
    with corro.load_plan(graph) as loaded:
        for step in range(steps + 1):
            corro.barrier()
            start = time.perf_counter()
            until = (step + 1) * candidate.micro_batches
            name = str(corro.rank())
            loaded.run(until, {f"F{name}": work.forward, f"B{name}": work.backward})
            if candidate.data > 1:
                ct.allreduce_(work.gradients, ct.Average, group=groups[number])
            work.update()
            mine.append(time.perf_counter() - start)
    peak = _resident("VmHWM") - before if can_see else 0
    results = ct.allgather_object((mine[1:], peak))
    candidate.steps += [max(step) for step in zip(*(times for times, _ in results), strict=True)]
    candidate.memory = [bytes_ for _, bytes_ in results] if can_see else []


def runnable(graph: Plan, candidate: Candidate, chain: Chain) -> Plan:
    """Returns the plan with room in its channels for what stages hand on.

    What forward keeps for backward lies in torch, so that the stash is a token.
    """
    assert candidate.planned is not None
    stages = candidate.planned.decisions.stages
    channels = []
    for channel in graph.channels:
        what, _, service = channel.name.partition(".")
        size = 0
        if service:
            number = int(service[1:]) // candidate.data
            end = stages[number if what == "activation" else number - 1].end_layer
            size = 4 * prod(chain.boundary(end - 1, candidate.micro_batch))
        channels.append(dataclasses.replace(channel, slot_bytes=size))
    return dataclasses.replace(graph, channels=tuple(channels))


def _give_back() -> None:
    """Gives freed memory back to the system, so that it does not count."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def _forget_peak() -> bool:
    """Sets VmHWM to what is resident now; returns whether that worked."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return False
    return True


def _resident(field: str) -> int:
    """Returns a field of /proc/self/status in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0
