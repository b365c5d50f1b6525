"""What services need of their ranks, and what ranks have: bytes of memory, GPUs, what users name.

needs = {"memory": 2e9, "camera": 1}    of each replica of a service
has   = {"camera": 1}                   of a rank, beside its memory and GPUs
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from corro._context import nodes, world
from corro._objects import allgather_object
from corro.errors import InvalidArgumentError, ResourceExhaustedError
from corro.torch.parallel.capability import host_memory, share_of, sharers_of

Amounts = Mapping[str, float]
MEMORY, GPU = "memory", "gpu"


def checked(amounts: object, what: str) -> dict[str, float]:
    """Returns names with numbers, as they were given.

    Raises:
        InvalidArgumentError: they are not that; the message begins with `what`.
    """
    given = {} if amounts is None else amounts
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f'{what}: resources has to be names and numbers, as {{"memory": 2e9}}, not {given!r}'
        )
    for name, number in given.items():
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        if not isinstance(name, str) or not is_number or not 0 <= number < math.inf:
            raise InvalidArgumentError(
                f"{what}: resources: {name!r} has to be a name with a number from 0, not {number!r}"
            )
    return {name: float(number) for name, number in given.items()}


def supplies_of(own: Amounts) -> list[dict[str, float]]:
    """Returns what each rank has. Called by all ranks, blocks.

    Ranks of a host share its memory, and what cgroups leave of it, evenly. A rank that sees GPUs
    has one.

    Args:
        own: what the user says of this rank, which counts before what is found.
    """
    host = nodes()[world().ranks[world().rank()]]
    gpus = min(1, torch.cuda.device_count())
    told = allgather_object((host, host_memory(), gpus, dict(own)))
    sharers = sharers_of((host, limits) for host, limits, _, _ in told)
    return [
        {MEMORY: share_of(host, limits, sharers), GPU: gpus, **own}
        for host, limits, gpus, own in told
    ]


class Room:
    """What is left on each rank."""

    def __init__(self, supplies: Sequence[Amounts] | None, ranks: int) -> None:
        """`supplies`: of each rank; None: nothing needs any."""
        self._left = [dict(each) for each in supplies or [{}] * ranks]

    def has(self, rank: int, needs: Amounts) -> bool:
        return all(self._left[rank].get(name, 0.0) >= number for name, number in needs.items())

    def take(self, rank: int, needs: Amounts, service: str) -> None:
        """Takes it away.

        Raises:
            ResourceExhaustedError: there is less.
        """
        if not self.has(rank, needs):
            raise self.refusal(service, needs, f"rank {rank} has", [rank])
        for name, number in needs.items():
            self._left[rank][name] -= number

    def refusal(
        self, service: str, needs: Amounts, whose: str, ranks: Sequence[int]
    ) -> ResourceExhaustedError:
        """Returns what to say where nobody of `ranks` has enough."""
        wanted = ", ".join(f"{name} {number:g}" for name, number in needs.items())
        left = ", ".join(
            f"{name} {max(self._left[rank].get(name, 0.0) for rank in ranks):g}" for name in needs
        )
        return ResourceExhaustedError(
            f"graph.run: {service} needs {wanted}; {whose} {left} left: ask for less, tell "
            "Graph(resources=...) what each rank has, or start more ranks"
        )


def together(services: Sequence[Amounts]) -> dict[str, float]:
    """Returns what services of one rank need together."""
    total: Counter[str] = Counter()
    for each in services:
        total.update(each)
    return dict(total)
