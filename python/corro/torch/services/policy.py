"""An order of all firings by a policy, made on one rank before they run.

The plan's marking is played forward: which services could fire now, by what is in the channels. The
policy picks one of them, it counts as done, and so on until all steps are. Every rank then fires
its services in this order, so no message has to be waited for while they run. Collectives are no
choice: they fire as soon as they can.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from corro._context import world
from corro._objects import broadcast_bytes
from corro.errors import InvalidArgumentError
from corro.graph import Plan, Service

MOST_SECONDS = 20.0
Order = list[tuple[str, int]]


@dataclass(frozen=True)
class Ready:
    """A firing that could be the next one."""

    service: str
    step: int
    """Counted from 0."""
    rank: int
    seconds: float
    """That its first firing took."""


Policy = Callable[[Sequence[Ready]], Ready]


class Native:
    """A policy in C or C++: a shared library that has

        struct Ready { const char* service; uint32_t step, rank; double seconds; };
        extern "C" size_t corro_policy(const Ready* ready, size_t count);

    which returns the number of the next one, below `count`. It may not keep the memory.

    Raises:
        InvalidArgumentError: there is no such library, or it has no such function.
    """

    class _Ready(ctypes.Structure):
        _fields_ = (
            ("service", ctypes.c_char_p),
            ("step", ctypes.c_uint32),
            ("rank", ctypes.c_uint32),
            ("seconds", ctypes.c_double),
        )

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        try:
            self._function = ctypes.CDLL(self._path).corro_policy
        except (OSError, AttributeError) as error:
            raise InvalidArgumentError(f"policy {self._path}: {error}") from error
        self._function.restype = ctypes.c_size_t
        self._function.argtypes = (ctypes.POINTER(self._Ready), ctypes.c_size_t)

    def __call__(self, ready: Sequence[Ready]) -> Ready:
        given = (self._Ready * len(ready))()
        for place, one in zip(given, ready, strict=True):
            place.service, place.step = one.service.encode(), one.step
            place.rank, place.seconds = one.rank, one.seconds
        chosen: int = self._function(given, len(ready))
        if chosen >= len(ready):
            raise InvalidArgumentError(f"answers {chosen} where {len(ready)} are ready")
        return ready[chosen]


def agreed_order(plan: Plan, policy: Policy, first: int, until: int, before: int) -> Order:
    """Returns the order of a run on every rank; rank 0 asks its policy. Blocks.

    Args:
        first: the plan's micro-batch with which the run begins; it ends before `until`.
        before: steps that were run without the plan.

    Raises:
        InvalidArgumentError: the policy has raised, has answered what is not ready, or has not
            answered in 20 seconds; on every rank.
    """

    def make() -> bytes:
        name = getattr(policy, "__name__", type(policy).__name__)
        try:
            order = _within(
                MOST_SECONDS, policy, lambda asked: order_of(plan, asked, first, until, before)
            )
        except Exception as error:
            what = str(error) if isinstance(error, InvalidArgumentError) else repr(error)
            raise InvalidArgumentError(f'policy "{name}": {what}') from error
        return json.dumps(order).encode()

    data = broadcast_bytes("graph.run", make, world().ranks[0], world())
    return [(name, micro) for name, micro in json.loads(data)]


def order_of(plan: Plan, policy: Policy, first: int, until: int, before: int) -> Order:
    """Returns an order in which all services can fire: (service, micro-batch)."""
    marking = _Marking(plan, first, until)
    lanes = {lane.name: lane.ranks[0] for lane in plan.lanes}
    order: Order = []
    while True:
        able = marking.able()
        if not able:
            return order
        collectives = [one for one in able if one.operation is not None]
        for one in collectives:
            marking.fire(one)
        if collectives:
            continue
        ready = tuple(
            Ready(
                one.name,
                marking.micro[one.name] + before,
                lanes[one.lane],
                one.duration_ns / 1e9,
            )
            for one in able
        )
        chosen = policy(ready)
        if chosen not in ready:
            raise InvalidArgumentError(f"answers {chosen!r}, which is not ready")
        service = able[ready.index(chosen)]
        order.append((service.name, marking.micro[service.name]))
        marking.fire(service)


class _Marking:
    """How many slots of each channel are readable for each taker, as services fire."""

    def __init__(self, plan: Plan, first: int, until: int) -> None:
        self._services = plan.services
        self._until = until
        self.micro = {one.name: first for one in plan.services}
        self._slots = {one.name: one.slots for one in plan.channels}
        initial = {one.name: one.initial for one in plan.channels}
        self._readable = {
            name: {one.name: initial[name] for one in plan.services if name in one.inputs}
            for name in initial
        }

    def able(self) -> list[Service]:
        return [one for one in self._services if self._can_fire(one)]

    def _can_fire(self, one: Service) -> bool:
        return (
            self.micro[one.name] < self._until
            and all(self._readable[name][one.name] for name in one.inputs)
            and all(max(self._readable[name].values()) < self._slots[name] for name in one.outputs)
        )

    def fire(self, one: Service) -> None:
        self.micro[one.name] += 1
        for name in one.inputs:
            self._readable[name][one.name] -= 1
        for name in one.outputs:
            for taker in self._readable[name]:
                self._readable[name][taker] += 1


def _within(seconds: float, policy: Policy, make: Callable[[Policy], Any]) -> Any:
    """Returns what `make` does with the policy, and ends it if an answer takes longer."""
    made: list[Any] = []
    since = [math.inf]  # When it was asked, while it is.

    def asked(ready: Sequence[Ready]) -> Ready:
        since[0] = time.monotonic()
        answer = policy(ready)
        since[0] = math.inf
        return answer

    def run() -> None:
        try:
            made.append((make(asked), None))
        except BaseException as error:
            made.append((None, error))

    thread = threading.Thread(target=run, name="corro-policy", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(seconds / 10)
        if thread.is_alive() and time.monotonic() - since[0] > seconds:
            assert thread.ident is not None
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)
            )
            raise InvalidArgumentError(f"has not answered in {seconds:g} seconds")
    result, error = made[0]
    if error is not None:
        raise error
    return result
