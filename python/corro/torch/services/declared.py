"""What the user has declared: services and channels, and whether they make a network.

Nothing here runs, and every rank says the same: an error comes before anything has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from corro.errors import FailedPreconditionError, InvalidArgumentError

Place = int | str | Sequence[int] | None
MOST_NAME_BYTES = 100


@dataclass(eq=False)
class Channel:
    """Tensors from one service to others, one for each step; made by Graph.service()."""

    name: str
    slots: int = 2
    initial: tuple[Tensor, ...] = ()
    feeder: Service | None = None
    takers: list[Service] = field(default_factory=list)

    @property
    def loops(self) -> bool:
        """Whether it carries what an earlier step gave."""
        return bool(self.initial)


@dataclass(eq=False)
class Service:
    """A function with its channels. With several ranks each has a share of the rows."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Channel, ...]
    outputs: tuple[Channel, ...]
    on: int | str | tuple[int, ...] | None
    replicas: int
    resources: Mapping[str, float] = field(default_factory=dict)  # That each replica needs.

    @property
    def module(self) -> nn.Module | None:
        """Returns its module, if it is one."""
        return self.function if isinstance(self.function, nn.Module) else None

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Returns what training changes."""
        found = self.module.parameters() if self.module is not None else ()
        return [each for each in found if each.requires_grad]

    def line(self) -> str:
        """Returns what ranks compare."""
        inputs, outputs = ([one.name for one in ends] for ends in (self.inputs, self.outputs))
        slots = [one.slots for one in self.outputs]
        needs = f" needs {dict(self.resources)}" if self.resources else ""
        return (
            f"{self.name}{inputs}->{outputs} on {self.on!r} x{self.replicas} slots {slots}{needs}"
        )


def checked_name(name: object, what: str) -> str:
    """Returns a name that plans can have."""
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= MOST_NAME_BYTES:
        raise InvalidArgumentError(
            f"{what} has to be text of 1 to {MOST_NAME_BYTES} bytes, not {name!r}"
        )
    if not name.isprintable() or '"' in name:
        raise InvalidArgumentError(
            f"{what} has to be printable, without quotation marks, not {name!r}"
        )
    return name


def checked_place(on: object, replicas: object, what: str) -> tuple[Any, int]:
    """Returns where a service is to be, and how often."""
    if type(replicas) is not int or replicas < 1:
        raise InvalidArgumentError(f"{what}: replicas has to be a number from 1, not {replicas!r}")
    if on is None or (isinstance(on, str) and replicas == 1):
        return on, replicas
    if type(on) is int and replicas == 1:
        return on, 1
    ranks = on if isinstance(on, (tuple, list, range)) else ()
    different = all(type(each) is int for each in ranks) and len(set(ranks)) == len(ranks)
    if ranks and different and replicas in (1, len(ranks)):
        return tuple(ranks), len(ranks)
    raise InvalidArgumentError(
        f"{what}: on has to be a rank, a colour's name, as many different ranks as replicas, or "
        f"None; not {on!r} with {replicas} replicas"
    )


def check(services: Sequence[Service], channels: Iterable[Channel], loss: Channel | None) -> None:
    """Raises if this is no network that can run, with the name of a service.

    Raises:
        InvalidArgumentError: a channel has no feeder, or no taker; replicas do not fit together.
    """
    if not services:
        raise InvalidArgumentError("graph.run: the graph has no services")
    for one in channels:
        if one.feeder is None:
            whom = f'; service "{one.takers[0].name}" waits for it' if one.takers else ""
            raise InvalidArgumentError(f'graph.run: nobody feeds channel "{one.name}"{whom}')
        if not one.takers and one is not loss:
            raise InvalidArgumentError(
                f'graph.run: service "{one.feeder.name}": nobody takes its output "{one.name}"'
            )
        for taker in one.takers:
            counts = one.feeder.replicas, taker.replicas
            if min(counts) > 1 and counts[0] != counts[1]:
                raise InvalidArgumentError(
                    f'graph.run: service "{one.feeder.name}" has {counts[0]} replicas, and '
                    f'"{taker.name}", which takes "{one.name}", {counts[1]}: give them as many'
                )
    if loss is not None and loss.feeder is not None and loss.feeder.replicas > 1:
        raise InvalidArgumentError(
            f'graph.run: service "{loss.feeder.name}" makes the loss, and so has one replica'
        )


def in_order(services: Sequence[Service]) -> list[Service]:
    """Returns the services so that each comes after those that it waits for in a step.

    Raises:
        FailedPreconditionError: some wait for each other, in a loop without an initial token.
    """
    done: list[Service] = []
    rest = list(services)
    while rest:
        ready = [one for one in rest if not any(_waits(one, other) for other in rest)]
        if not ready:
            names = ", ".join(f'"{name}"' for name in _loop(rest))
            raise FailedPreconditionError(
                f"graph.run: services {names} wait for each other, in a loop of channels without "
                "an initial token: give graph.channel() what the first step takes"
            )
        done += ready
        rest = [one for one in rest if one not in ready]
    return done


def _waits(one: Service, other: Service) -> bool:
    return any(each.feeder is other and not each.loops for each in one.inputs)


def _loop(waiting: Sequence[Service]) -> list[str]:
    """Returns the names of services that wait for each other, among those that all wait."""
    path = [waiting[0]]
    while True:
        before = next(other for other in waiting if _waits(path[-1], other))
        if before in path:
            return [one.name for one in reversed(path[path.index(before) :])]
        path.append(before)


def towards(loss: Channel | None) -> set[Service]:
    """Returns the services whose outputs reach the loss within a step."""
    found: set[Service] = set()
    rest = [] if loss is None or loss.feeder is None else [loss.feeder]
    while rest:
        one = rest.pop()
        if one not in found:
            found.add(one)
            rest += [each.feeder for each in one.inputs if each.feeder and not each.loops]
    return found


def check_parameters(services: Iterable[Service]) -> None:
    """Raises if this cannot be trained.

    Raises:
        InvalidArgumentError: two services train the same parameter, or the replicas of one have
            parameters of several dtypes.
    """
    owners: dict[int, Service] = {}
    for one in services:
        dtypes = {str(each.dtype) for each in one.parameters}
        if one.replicas > 1 and len(dtypes) > 1:
            raise InvalidArgumentError(
                f'graph.run: service "{one.name}": replicas need parameters of one dtype, and it '
                f"has {', '.join(sorted(dtypes))}"
            )
        for parameter in one.parameters:
            other = owners.setdefault(id(parameter), one)
            if other is not one:
                raise InvalidArgumentError(
                    f'graph.run: services "{other.name}" and "{one.name}" train the same '
                    "parameter: make one service of both"
                )
