"""`corro.Graph`: services are added, then all ranks run them, step by step.

graph.service()   declares one; nothing runs
graph.run()       at first: is the network whole, do ranks agree, run step 0 (first_step.py),
                  find places, load the plan; then: run the plan (running.py)
graph.close()     forgets the plan
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import chain, count
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import corro.torch as ct
from corro import _arguments
from corro._context import exchange, world
from corro._objects import allgather_bytes
from corro.errors import (
    CorroError,
    FailedPreconditionError,
    InvalidArgumentError,
    MismatchError,
    NotFoundError,
)
from corro.torch.services import beginning, declared, drawing, log, supplies
from corro.torch.services.cells import Call, Cell, Forward, Tensors, call_here
from corro.torch.services.declared import Channel, Place, Service
from corro.torch.services.first_step import failure_of
from corro.torch.services.log import Fired, Recorder, Replayed
from corro.torch.services.network import Network
from corro.torch.services.placing import Places
from corro.torch.services.policy import Order, Policy, agreed_order
from corro.torch.services.running import FIRST, LANES, Running, check_kind, check_shape

if TYPE_CHECKING:
    from typing_extensions import Self

_MOST_SLOTS = 1 << 10


class Graph:
    """Services joined by channels; every rank makes the same one. Externally synchronized.

    Args:
        lanes: how services of one rank run: in `sequence`, the first in the plan first; on
            `threads`, one each; or as `coroutines`, all on one thread, where functions may be
            `async`.
        policy: orders all firings beforehand, on rank 0: a function that gets those that are ready
            (corro.torch.services.Ready) and returns one of them, or a Native. None: each service
            fires as soon as its channels and its lane allow it.
        resources: what this rank has, by names that services use in theirs, as {"camera": 1}. Its
            "memory" (bytes that are left, by an even share for each rank of a host) and "gpu" (1 if
            it sees one) are found.
    """

    def __init__(
        self,
        *,
        lanes: str = "sequence",
        policy: Policy | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        if lanes not in LANES:
            raise InvalidArgumentError(f"Graph: lanes has to be one of {LANES}, not {lanes!r}")
        if policy is not None and not callable(policy):
            raise InvalidArgumentError(f"Graph: policy has to be a function, not {policy!r}")
        if policy is not None and lanes != "sequence":
            raise InvalidArgumentError('Graph: a policy orders services in lanes="sequence" alone')
        self._has = supplies.checked(resources, "Graph")
        self.steps = 0
        """Steps that were run."""
        self.log: deque[Fired] = deque(maxlen=log.MOST_KEPT)
        """The last 10 000 firings on this rank."""
        self._lanes, self._policy = lanes, policy
        self._services: list[Service] = []
        self._channels: list[Channel] = []
        self._loss: Channel | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._recorder: Recorder | None = None
        self._network: Network | None = None
        self._running: Running | None = None
        self._failure: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- What is declared -------------------------------------------------------------------------

    def service(
        self,
        function: Callable[..., Any],
        *inputs: Channel,
        name: str | None = None,
        outputs: Channel | Sequence[str | Channel] | None = None,
        on: Place = None,
        replicas: int = 1,
        resources: Mapping[str, float] | None = None,
        slots: int = 2,
    ) -> Any:
        """Adds a service, and returns the channel of its output; of several, a tuple.

        Args:
            function: an `nn.Module` or any function of one tensor for each input, which returns one
                for each output. Without inputs it gets the number of the step, from 0. Tensors are
                its own to keep, on its module's device, else on the CPU. Each step gives the dtype
                and shape that step 0 gave; the first dim may be smaller.
            inputs: what it takes, one tensor a step from each.
            name: for people; else the function's.
            outputs: names, or channels of channel(); one without a name if None. Empty: it returns
                nothing.
            on: its rank, its ranks, one for each replica, or the name of a colour: services of one
                colour share a rank. None: a colour of its own. A colour's rank is found by the time
                that its services take in step 0, which rank 0 runs for them; modules move with the
                optimizer's state, and what a function keeps does not: that needs a rank.
            replicas: that share the rows (dim 0) of every input; rows of their outputs are joined,
                gradients of parameters summed.
            resources: that each replica needs, as {"memory": 2e9, "gpu": 1}: it goes to a rank that
                has so much left, beside other services; one `on` a rank is refused if that has not.
            slots: of each output: how many steps it may be ahead of those that take it.

        Raises:
            InvalidArgumentError: an argument is none of these; the message names the service.
        """
        name = self._name_of(function, name)
        what = f'service "{name}"'
        if not callable(function):
            raise InvalidArgumentError(f"{what}: has to be a function or a module: {function!r}")
        self._refuse_late(what)
        slots = _arguments.whole(f"{what}: slots", slots, 1, _MOST_SLOTS)
        place, replicas = declared.checked_place(on, replicas, what)
        for each in inputs:
            self._check_own(each, what)
        if replicas > 1 and not inputs:
            raise InvalidArgumentError(f"{what}: has no inputs, whose rows replicas could share")
        given = (outputs,) if isinstance(outputs, Channel) else outputs
        fed = tuple(self._output(each, name, slots) for each in (name,) if given is None) or tuple(
            self._output(each, name, slots) for each in given or ()
        )
        needs = supplies.checked(resources, what)
        one = Service(name, function, inputs, fed, place, replicas, needs)
        for each in fed:
            each.feeder = one
        for each in inputs:
            each.takers.append(one)
        self._services.append(one)
        return fed[0] if len(fed) == 1 else fed

    def channel(self, name: str, *initial: Tensor, slots: int = 2) -> Channel:
        """Returns a channel that a later service feeds, for a loop.

        Args:
            initial: what its takers take in the first steps, before anybody has fed it.
            slots: as of service(); at least one more than `initial`.
        """
        name = declared.checked_name(name, "channel")
        if any(one.name == name for one in self._channels):
            raise InvalidArgumentError(f'channel "{name}": another channel has this name')
        for each in initial:
            if not isinstance(each, Tensor):
                raise InvalidArgumentError(f'channel "{name}": {each!r} is no tensor')
        slots = _arguments.whole(f'channel "{name}": slots', slots, 1, _MOST_SLOTS)
        one = Channel(name, slots, tuple(each.detach().cpu().clone() for each in initial))
        self._channels.append(one)
        return one

    def minimize(self, loss: Channel, optimizer: torch.optim.Optimizer) -> None:
        """Trains all modules from which a step's loss is computed, by gradients from it.

        Gradients go back through the channels, from service to service; the optimizer of each rank
        steps what its services have, before their next step. So a step is that of one process.

        Args:
            loss: the output of a service of one replica; one number.
            optimizer: of all parameters; what has no gradient on this rank it leaves alone.
        """
        self._refuse_late("minimize")
        self._check_own(loss, "minimize")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InvalidArgumentError(f"minimize: {optimizer!r} is no torch.optim.Optimizer")
        self._loss, self._optimizer = loss, optimizer

    def record(self, folder: str | os.PathLike[str], steps: Container[int]) -> None:
        """Has all services write what they get and give in these steps, for replay().

        Args:
            folder: that all ranks see; each service writes a file of its own a step.
        """
        self._recorder = Recorder(folder, steps)

    # --- What runs --------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Runs so many further steps of all services; called by all ranks, blocks.

        Raises:
            InvalidArgumentError: the services are no network (on every rank, before any runs), or
                one has failed in its first step, or here; the policy has failed.
            FailedPreconditionError: services wait for each other; the graph has failed before.
            ResourceExhaustedError: no rank has what a service needs (on all, before any runs).
            MismatchError: ranks have declared different graphs, or run them until other steps.
            CorroError: a service of another rank has failed; the message names it.
        """
        steps = _arguments.whole("graph.run: steps", steps, 0, 1 << 31)
        if self._failure is not None:
            raise FailedPreconditionError(
                f"graph.run: the graph has failed before: {self._failure}"
            )
        until = self.steps + steps
        self._check_alike(until)
        if self._running is None and steps:
            order = beginning.checked(self._services, self._channels, self._loss)
            self._failing(partial(self._begin, order))
        if self._running is not None and until > self.steps:
            self._failing(partial(self._run_plan, self._running, until, self._order(until)))
            self.steps = until

    def gather(self) -> None:
        """Brings parameters and buffers of all modules to every rank. Called by all; blocks."""
        for one in self._services:
            if one.module is not None and self._network is not None:
                owner = world().ranks[self._network.places[one.name][0]]
                with torch.no_grad():
                    for each in one.module.state_dict().values():
                        if isinstance(each, Tensor):
                            ct.broadcast_(each, owner)

    def close(self) -> None:
        """Forgets the plan; one that is running stops on all ranks."""
        if self._running is not None:
            self._running.unload()
            self._running = None
            self._failure = "it was closed"

    # --- What one can see -------------------------------------------------------------------------

    @property
    def plan(self) -> Any | None:
        """The corro.Plan that runs; None before the first step."""
        return None if self._running is None else self._running.plan

    @property
    def places(self) -> Places:
        """The ranks of each service, once there are any."""
        return {} if self._network is None else dict(self._network.places)

    def describe(self) -> str:
        """Returns a line for each service: its ranks, its time, and what it gives to whom."""
        return drawing.text(self._services, self._network)

    def svg(self) -> str:
        """Returns a picture: services as boxes by rank, channels as arrows with slots and bytes."""
        return drawing.svg(self._services, self._network)

    def replay(
        self, folder: str | os.PathLike[str], step: int, service: str, replica: int = 0
    ) -> Replayed:
        """Runs one service's function again on what record() has written, and compares.

        Needs no other rank. A module runs with the state that it had, and torch's generator of the
        CPU as it was; what a function keeps itself is not recorded.

        Raises:
            NotFoundError: there is no such service, or no record of it.
            InvalidArgumentError: the record is of another module.
        """
        one = next((each for each in self._services if each.name == service), None)
        if one is None:
            known = ", ".join(each.name for each in self._services)
            raise NotFoundError(f'graph.replay: there is no service "{service}"; there are {known}')
        cell = Forward(one, replica, 0, False)
        return log.replay(
            folder,
            step,
            cell.name,
            one.function,
            lambda given: cell.results(given, True, call_here),
        )

    # --- How it begins ----------------------------------------------------------------------------

    def _begin(self, order: Sequence[Service]) -> None:
        network = beginning.begun(order, self._loss, self._optimizer, self._fire, self._has)
        apart = self._lanes != "sequence" or self._policy is not None
        self._running = Running(network.cells, world().size(), self._lanes, apart, self._fire)
        self._network, self.steps = network, FIRST

    def _failing(self, act: Callable[[], None]) -> None:
        """Acts; if that fails, no other step may follow."""
        try:
            act()
        except BaseException as error:
            self._failure = str(error) or type(error).__name__
            raise

    def _check_alike(self, until: int) -> None:
        ends = [row[0] for row in exchange(world(), [until])]
        other = next((at for at, end in enumerate(ends) if end != ends[0]), None)
        if other is not None:
            first, rank = world().ranks[0], world().ranks[other]
            raise MismatchError(
                f"graph.run: rank {rank} runs until step {ends[other]}, rank {first} until step "
                f"{ends[0]}: all ranks run the same number of steps"
            )

    def _run_plan(self, running: Running, until: int, order: Order | None) -> None:
        """Runs the plan; ranks that have no part in what has failed hear of it at the end."""
        failure: Exception | None = None
        try:
            running.run(until, order)
        except Exception as error:
            failure = error
        with suppress(CorroError) if failure else nullcontext():
            said = allgather_bytes("graph.run", lambda: str(failure or "").encode(), world())
        if failure:
            raise failure
        for rank, each in zip(world().ranks, said, strict=True):
            if each:
                raise InvalidArgumentError(f"graph.run: rank {rank}: {each.decode()}")

    def _order(self, until: int) -> Order | None:
        if self._policy is None or self._running is None:
            return None
        plan, first = self._running.plan, self.steps - FIRST
        return agreed_order(plan, self._policy, first, until - FIRST, FIRST)

    def _fire(self, cell: Cell, step: int, inputs: Tensors, call: Call = call_here) -> Tensors:
        """Runs a cell, and logs it."""
        began = time.perf_counter()
        if isinstance(cell, Forward):
            cell.recorder = self._recorder
        got = [log.digest(each) for each in inputs if each is not None]
        try:
            outputs = cell.run(step, inputs, call)
            for edge, tensor in zip(cell.outputs, outputs, strict=True):
                if tensor is not None and step:
                    check_shape(edge, tensor)
                elif tensor is not None and edge.kind == "tensor":
                    check_kind(tensor)
        except Exception as error:
            raise failure_of(cell, step, error) from error
        gave = [log.digest(each) for each in outputs if each is not None]
        seconds = time.perf_counter() - began
        self.log.append(Fired(step, cell.name, tuple(got), tuple(gave), seconds))
        return outputs

    # --- What is checked --------------------------------------------------------------------------

    def _name_of(self, function: object, name: str | None) -> str:
        if name is not None:
            name = declared.checked_name(name, "service: name")
            if any(one.name == name for one in self._services):
                raise InvalidArgumentError(f'service "{name}": another service has this name')
            return name
        found = getattr(function, "__name__", type(function).__name__).strip("<>")
        taken = {one.name for one in self._channels} | {one.name for one in self._services}
        others = (f"{found}-{number}" for number in count(2))
        return next(each for each in chain([found], others) if each not in taken)

    def _output(self, one: str | Channel, service: str, slots: int) -> Channel:
        what = f'service "{service}": outputs'
        if isinstance(one, Channel):
            self._check_own(one, what)
            if one.feeder is not None:
                raise InvalidArgumentError(
                    f'{what}: "{one.feeder.name}" feeds "{one.name}" already'
                )
            return one
        name = declared.checked_name(one, what)
        return self.channel(service if name == service else f"{service}.{name}", slots=slots)

    def _check_own(self, one: object, what: str) -> None:
        if not isinstance(one, Channel) or one not in self._channels:
            raise InvalidArgumentError(f"{what}: {one!r} is no channel of this graph")

    def _refuse_late(self, what: str) -> None:
        if self._network is not None or self._failure is not None:
            raise FailedPreconditionError(f"{what}: the graph has run already")
