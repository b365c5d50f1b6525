"""Which ranks services are on: where the user said so, there; the others by the time they take.

A colour goes to the rank that is the least loaded, the longest one first (Graham, "Bounds on
multiprocessing timing anomalies", 1969: at most a third above the best balance). What is sent
between ranks is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corro.errors import InvalidArgumentError
from corro.torch.services.declared import Service

Places = dict[str, tuple[int, ...]]


def places_of(
    services: Sequence[Service], ranks: int, seconds: Mapping[str, float] | None = None
) -> Places:
    """Returns each service's ranks, one for each replica.

    Args:
        ranks: of the job.
        seconds: that a step of each service takes. None: not known yet; rank 0 has them all.

    Raises:
        InvalidArgumentError: a service is to be on a rank that there is not, or on more than there
            are.
    """
    found: Places = {}
    free: dict[str, list[Service]] = {}
    for one in services:
        _check(one, ranks)
        if isinstance(one.on, (int, tuple)):
            found[one.name] = one.on if isinstance(one.on, tuple) else (one.on,)
        else:
            colour = f"colour {one.on}" if one.on is not None else f"service {one.name}"
            free.setdefault(colour, []).append(one)
    if seconds is None:
        return found | {one.name: tuple(range(one.replicas)) for of in free.values() for one in of}
    load = [0.0] * ranks
    for name, on in found.items():
        for rank in on:
            load[rank] += seconds[name] / len(on)
    of_colour = {colour: sum(seconds[one.name] for one in free[colour]) for colour in free}
    for colour in sorted(free, key=lambda each: (-of_colour[each], each)):
        replicas = free[colour][0].replicas
        chosen = sorted(range(ranks), key=lambda rank: (load[rank], rank))[:replicas]
        for rank in chosen:
            load[rank] += of_colour[colour] / replicas
        found |= {one.name: tuple(sorted(chosen)) for one in free[colour]}
    return found


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
