"""Which ranks services are on: where the user said so, there; the others by the time they take.

A colour goes to the rank that is the least loaded among those that have what it needs, the longest
one first (Graham, "Bounds on multiprocessing timing anomalies", 1969: at most a third above the
best balance, where none needs anything). Colours that need the largest part of what there is come
before the others, which find room more easily. What is sent between ranks is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corro.errors import InvalidArgumentError
from corro.torch.services.declared import Service
from corro.torch.services.supplies import Amounts, Room, together

Places = dict[str, tuple[int, ...]]


def places_of(
    services: Sequence[Service],
    ranks: int,
    seconds: Mapping[str, float] | None = None,
    supplies: Sequence[Amounts] | None = None,
) -> Places:
    """Returns each service's ranks, one for each replica.

    Args:
        ranks: of the job.
        seconds: that a step of each service takes. None: not known yet; the first ranks that have
            what services need have them all.
        supplies: what each rank has; None: not asked for yet, it counts as enough.

    Raises:
        InvalidArgumentError: a service is to be on a rank that there is not, or on more than there
            are.
        ResourceExhaustedError: no rank, or not the one it is to be on, has what a service needs.
    """
    found: Places = {}
    free: dict[str, list[Service]] = {}
    room, load = Room(supplies, ranks), [0.0] * ranks
    for one in services:
        _check(one, ranks)
        if isinstance(one.on, (int, tuple)):
            found[one.name] = one.on if isinstance(one.on, tuple) else (one.on,)
        else:
            colour = f"colour {one.on}" if one.on is not None else f'service "{one.name}"'
            free.setdefault(colour, []).append(one)
    needs = {one.name: one.resources if supplies else {} for one in services}
    times = seconds or dict.fromkeys(needs, 0.0)
    for name, on in found.items():
        for rank in on:
            load[rank] += times[name] / len(on)
            room.take(rank, needs[name], f'service "{name}"')
    takes = {colour: sum(times[one.name] for one in free[colour]) for colour in free}
    wants = {colour: together([needs[one.name] for one in free[colour]]) for colour in free}
    scarce = {colour: _scarcity(wants[colour], supplies or ()) for colour in free}
    for colour in sorted(free, key=lambda each: (-scarce[each], -takes[each], each)):
        replicas = free[colour][0].replicas
        able = [rank for rank in range(ranks) if room.has(rank, wants[colour])]
        if len(able) < replicas:
            few = f"only {len(able)} ranks have that; " if replicas > 1 else ""
            whose = f"{few}a rank has at most"
            raise room.refusal(colour, wants[colour], whose, range(ranks))
        chosen = sorted(able, key=lambda rank: (load[rank], rank))[:replicas]
        for rank in chosen:
            load[rank] += takes[colour] / replicas
            room.take(rank, wants[colour], colour)
        found |= {one.name: tuple(sorted(chosen)) for one in free[colour]}
    return found


def _scarcity(needs: Amounts, supplies: Sequence[Amounts]) -> float:
    """Returns the largest part that this is of what all ranks have."""
    parts = [
        number / sum(each.get(name, 0.0) for each in supplies)
        for name, number in needs.items()
        if any(each.get(name, 0.0) for each in supplies)
    ]
    return max(parts, default=0.0)


def _check(service: Service, ranks: int) -> None:
    on = (service.on,) if isinstance(service.on, int) else service.on
    outside = [each for each in on if not 0 <= each < ranks] if isinstance(on, tuple) else []
    if outside:
        raise InvalidArgumentError(
            f'graph.run: service "{service.name}": on: there is no rank {outside[0]}; the job has '
            f"ranks 0 to {ranks - 1}"
        )
    if service.replicas > ranks:
        raise InvalidArgumentError(
            f'graph.run: service "{service.name}" has {service.replicas} replicas, and the job '
            f"{ranks} ranks"
        )
