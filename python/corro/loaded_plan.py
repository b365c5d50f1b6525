"""Plans that this job runs: `corro.load_plan(plan)`, on every rank.

A function gets a Firing: its micro-batch, and the memory of its inputs and outputs. Collectives,
transfers between ranks and copies run by themselves, while functions compute. docs/plan.md has an
example.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from corro import _arguments, _native
from corro._arguments import MOST_U32, seconds, whole
from corro._context import Group, report, world, world_or
from corro._plan_agreement import agree
from corro.errors import CorroError, InvalidArgumentError
from corro.graph import COPIES, DTYPES, KINDS, ORDERS, REDUCE_OPS, Copy, Operation, Plan

if TYPE_CHECKING:
    from typing_extensions import Self

_UNKNOWN = 2
_CANCELLED = 1
_MOST_NAME_BYTES = 63
_MOST_SIZE = (1 << 63) - 1


class Firing:
    """One firing of a service, in the hands of a function until it returns."""

    __slots__ = ("_native", "micro", "repeats", "service")

    def __init__(self, native: _native.Firing, service: str, repeats: bool) -> None:
        self._native = native
        self.service = service
        """Its service's name."""
        self.micro = native.micro
        """Which micro-batch it is for; of a service with `every`, the last one."""
        self.repeats = repeats
        """Whether the service has completed this micro-batch on this rank before, in a plan that
        `after` named. A service that is new on this rank counts as far as all others were."""

    @property
    def inputs(self) -> list[memoryview]:
        """The bytes that each input's slot is filled with, in the order of the plan; empty ones
        are tokens. A channel from a service that fires n times as often has n, in the order of
        time."""
        return self._native.inputs

    @property
    def outputs(self) -> list[memoryview]:
        """The bytes of each output's slot, to be filled."""
        return self._native.outputs

    def fill(self, output: int, size: int) -> None:
        """Says that an output, by its place, has `size` bytes from its slot's first on, not all.

        Another rank is sent no more, and that is what its consumers' input has. Collectives read
        what their count says all the same.

        Raises:
            InvalidArgumentError: there is no such output, or it has not so much room.
        """
        place = whole("output", output, 0, MOST_U32)
        self._native.fill(place, whole("size", size, 0, _MOST_SIZE))


Function = Callable[[Firing], object]


class _Progress(NamedTuple):
    """The least micro-batches that were not complete on this rank."""

    all: int
    services: dict[str, int]

    def of(self, service: str) -> int:
        return self.services.get(service, self.all)


class LoadedPlan:
    """A plan that is loaded on a group; see load_plan(). Methods are thread-safe."""

    def __init__(
        self,
        plan: Plan,
        group: Group,
        native: _native.Plan,
        first: int = 0,
        before: _Progress | None = None,
    ) -> None:
        self.plan = plan
        self.group = group
        self._native = native
        self._before = before or _Progress(0, {})
        self._lanes = {
            lane.name: number for number, lane in enumerate(plan.lanes) if native.pulls(number)
        }
        self._lock = threading.Lock()
        self._served = dict.fromkeys(self._lanes, first)  # With the lock.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._leave(error)
        self.unload()

    def run(self, until: int, functions: Mapping[str, Function] | None = None) -> None:
        """Runs all services for micro-batches below `until`; returns when they are complete here.

        Args:
            until: micro-batches are counted from 0 over the whole life of the plan.
            functions: what computes each service of this rank, by its name. The first lane's run on
                this thread, those of each further one on a thread of its own. None, or a lane
                without any of them: other threads serve().

        Raises:
            CorroError: the plan has stopped, here or on another rank; the message says at which
                service and micro-batch, and why.
            BaseException: what a function raised, or Ctrl-C, which has stopped the plan on all
                ranks. Functions that still compute on other threads are waited for.
        """
        lanes = [lane for lane in self._lanes if functions and self._functions_of(lane, functions)]
        work = self.start(until)
        threads: list[threading.Thread] = []
        raised: list[BaseException] = []

        def serve(lane: str) -> None:
            try:
                self._serve(lane, functions or {}, until)
            except BaseException as error:
                raised.append(error)

        try:
            for lane in lanes[1:]:
                thread = threading.Thread(target=serve, args=(lane,), daemon=True)
                thread.start()
                threads.append(thread)
            for lane in lanes[:1]:
                serve(lane)
            _join(threads)
            if not raised:
                work.wait()
        except BaseException as error:
            raised.append(error)
            self._leave(error)
            _join(threads)
        for cause in raised:
            if not isinstance(cause, CorroError):
                raise cause
        if raised:
            raise raised[0]

    def serve(self, lane: str, functions: Mapping[str, Function], until: int) -> None:
        """Computes the firings of one lane for micro-batches below `until` on this thread.

        Blocks until the last one is done; somebody else has to run().
        """
        until = _checked_until(until)
        if lane not in self._lanes:
            raise InvalidArgumentError(
                f'lane "{lane}" is not served on this rank; there are {sorted(self._lanes)}'
            )
        self._serve(lane, functions, until)

    def start(self, until: int) -> _native.Work:
        """Lets services fire for micro-batches below `until`, and returns at once.

        Returns:
            a work whose wait() returns when they are complete on this rank.
        """
        return self._native.run(_checked_until(until))

    def slot(self, channel: str, slot: int = 0) -> memoryview:
        """Returns the bytes of a slot on this rank, to fill what is readable at the start."""
        return self._native.slot(_number_of(self.plan, channel), whole("slot", slot, 0, MOST_U32))

    @property
    def completed(self) -> int:
        """The least micro-batch that a service has not completed on this rank, of those with which
        services of `every` several begin."""
        return self._native.completed()

    def describe(self) -> str:
        """Returns what each service of this rank waits for, a line each."""
        return self._native.describe()

    def stop(self, reason: str) -> None:
        """Stops the plan on all ranks; it stays stopped."""
        self._native.stop(_CANCELLED, reason)

    def unload(self) -> None:
        """Forgets the plan; one that is running stops on all ranks.

        Other threads' calls of this plan raise FailedPreconditionError, and are waited for; not so
        functions that compute: their slots stay as long as somebody holds a view of them.
        """
        self._native.unload()

    def _progress(self) -> _Progress:
        """How far this rank is, in this plan and in those that it came after."""
        services = {
            service.name: max(self._native.completed_by(number), self._before.of(service.name))
            for number, service in enumerate(self.plan.services)
            if service.lane in self._lanes
        }
        return _Progress(max(self.completed, self._before.all), services)

    def _functions_of(self, lane: str, functions: Mapping[str, Function]) -> list[str]:
        names = [service.name for service in self.plan.services if service.lane == lane]
        missing = [name for name in names if name not in functions]
        if missing and len(missing) < len(names):
            raise InvalidArgumentError(f'lane "{lane}" also needs functions for {missing}')
        return [] if missing else names

    def _leave(self, error: BaseException) -> None:
        """Stops the plan on all ranks, unless it has stopped, so that nobody waits for this one."""
        with suppress(CorroError):  # It was unloaded, or the engine was shut down.
            if not self._native.stopped():
                self.stop(f"rank {self.group.rank()} left it: {type(error).__name__}: {error}")

    def _serve(self, lane: str, functions: Mapping[str, Function], until: int) -> None:
        every = [service.every for service in self.plan.services if service.lane == lane]
        with self._lock:
            served = self._served[lane]
            count = sum(until // each - served // each for each in every)
            self._served[lane] = max(self._served[lane], until)
        try:
            for _ in range(count):
                self._compute_next(self._lanes[lane], functions)
        except BaseException as error:  # KeyboardInterrupt comes anywhere.
            self._leave(error)
            raise

    def _compute_next(self, lane: int, functions: Mapping[str, Function]) -> None:
        native = self._native.next(lane)
        service = self.plan.services[native.service].name
        firing = Firing(native, service, native.micro < self._before.of(service))
        try:
            functions[service](firing)
        except BaseException as error:
            native.done(_UNKNOWN, f"{type(error).__name__}: {error}")
            raise
        native.done()


def _checked_until(until: int) -> int:
    return whole("until", until, 0, MOST_U32)


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def load_plan(
    plan: Plan,
    group: Group | None = None,
    *,
    name: str = "",
    after: LoadedPlan | None = None,
    timeout: float | None = None,
    memory: Mapping[str, Sequence[object]] | None = None,
) -> LoadedPlan:
    """Loads a plan on a group: every member loads the same plans in the same order.

    Blocks until all members have come. Nothing fires before run(). Slots that `memory` does not
    name are arena memory, zeroed.

    Args:
        plan: of as many ranks as the group has; rank r of the plan is group rank r.
        group: the world if None.
        name: what people know the plan by, the same on all members: printable, and of at most 63
            bytes. In an elastic job the launcher hears the name of a plan of all ranks, for
            `--events` and for the status of a CorroJob.
        after: a plan that has stopped. The members agree on the least micro-batch that one of them
            has not completed in it, and all services go on from there, or from the one with which
            services of `every` several begin; what that repeats is told by
            Firing.repeats. Every member gives one, or none does.
        timeout: of a firing that waits for other ranks, or for a thread that serves its lane while
            none computes, in seconds; the engine's if None. A function may take longer.
        memory: by the name of a channel that lies on this rank, a list with what holds each of its
            slots instead of the arena: a bytearray, a numpy array, a detached CPU tensor, each
            of slot_bytes bytes, contiguous, not read-only, and aligned for the dtype of its
            collectives. Transfers and collectives read and write it where it is. It is kept until
            the plan is unloaded and no view of a slot is left. Each rank gives its own.

    Raises:
        InvalidArgumentError: the plan is not well formed, or not for this group; its name is too
            long, or not printable; or memory is not that of its slots, of which the message names
            the channel and the slot.
        MismatchError: another member loads another plan, or gives it another name, on every member;
            the message says in what they differ.
        FailedPreconditionError: it would stand still.
        ResourceExhaustedError: its slots are larger than the arena.
    """
    group = world_or(group)
    if not isinstance(plan, Plan):
        raise InvalidArgumentError(f"plan has to be a corro.Plan, not {plan!r}")
    name = _checked_name(name)
    timeout = seconds("timeout", timeout)
    spec = _spec_of(plan)
    given = _given(plan, {} if memory is None else memory)
    agree(plan, group, name, goes_on=after is not None)
    step = max((service.every for service in plan.services), default=1)
    first = 0 if after is None else _least(group, after.completed) // step * step
    native = group.native.load(spec, first, timeout, given)
    if name and group.rank() == 0 and group.size() == world().size():
        report(lambda: _native.report_plan(name))
    return LoadedPlan(plan, group, native, first, None if after is None else after._progress())


def _checked_name(name: str) -> str:
    name = _arguments.name("name", name) or ""
    if (size := len(name.encode())) > _MOST_NAME_BYTES:
        raise InvalidArgumentError(
            f"name has to have at most {_MOST_NAME_BYTES} bytes, and has {size}: {name!r}"
        )
    return name


def _given(
    plan: Plan, memory: Mapping[str, Sequence[object]]
) -> list[tuple[int, Sequence[object]]]:
    """Channels' names become numbers."""
    if not isinstance(memory, Mapping):
        raise InvalidArgumentError(f"memory has to be a dict by channels' names, not {memory!r}")
    for name, slots in memory.items():
        if not isinstance(slots, list | tuple):
            raise InvalidArgumentError(
                f"memory[{name!r}] has to be a list with one buffer for each slot, not a "
                f"{type(slots).__name__}"
            )
    return [(_number_of(plan, name), slots) for name, slots in memory.items()]


def _number_of(plan: Plan, channel: str) -> int:
    for number, one in enumerate(plan.channels):
        if one.name == channel:
            return number
    raise InvalidArgumentError(f'the plan has no channel "{channel}"')


def _least(group: Group, value: int) -> int:
    """Agrees on the least value of all members."""
    memory = array("q", [value])
    address = memory.buffer_info()[0]
    op = _native.Op(
        kind=_native.ALLREDUCE,
        dtype=_native.I64,
        reduce_op=_native.MIN,
        input=address,
        output=address,
        count=1,
    )
    group.native.run([op], memory)
    return memory[0]


def _spec_of(plan: Plan) -> _native.PlanSpec:
    """Names become numbers."""
    plan.check()
    lanes = {lane.name: number for number, lane in enumerate(plan.lanes)}
    channels = {channel.name: number for number, channel in enumerate(plan.channels)}

    def operation_of(operation: Operation | None) -> tuple[int, int, int, int, int] | None:
        if operation is None:
            return None
        return (
            KINDS.index(operation.kind),
            DTYPES.index(operation.dtype or "u8"),
            operation.count or 0,
            REDUCE_OPS.index(operation.reduce_op or "sum"),
            operation.root or 0,
        )

    def copy_of(copy: Copy | None) -> tuple[int, str, int, int, int] | None:
        if copy is None:
            return None
        return COPIES.index(copy.kind), copy.path or "", copy.offset, copy.stride, copy.count

    return _native.PlanSpec(
        plan.ranks,
        [(lane.name, ORDERS.index(lane.order), lane.depth, lane.ranks) for lane in plan.lanes],
        [
            (one.name, one.slots, one.initial, one.slot_bytes, one.transfer_ns)
            for one in plan.channels
        ],
        [
            (
                service.name,
                lanes[service.lane],
                service.priority,
                service.lag,
                service.every,
                service.duration_ns,
                [channels[name] for name in service.inputs],
                [channels[name] for name in service.outputs],
                operation_of(service.operation),
                copy_of(service.copy),
            )
            for service in plan.services
        ],
    )
