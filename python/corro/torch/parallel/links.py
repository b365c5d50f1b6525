"""How fast a group's ranks reach each other, by allreduces as training runs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from corro import _context
from corro._context import Group
from corro.torch.verbs import allreduce_

SMALL, PROBE, LARGE = 4, 1 << 20, 16 << 20
"""Bytes of an allreduce: of its latency, of a first look at its bandwidth, and of a fast link's:
more than caches hold, as gradients are."""
ROUNDS = 5
"""Of the small one."""
WINDOWS, WINDOW, MOST_ROUNDS = 3, 0.015, 32
"""How often the large one is measured, the seconds of each time, and the most in it."""
SLOW = 0.005
"""Seconds of the first look, from which on it is the answer: a second is not to be exceeded."""
UNIT = 1e9
"""Ranks exchange whole numbers: nanoseconds."""


@dataclass(frozen=True, slots=True)
class Link:
    """Bytes/s in each direction, and the seconds before the first byte."""

    bandwidth: float
    latency: float


Links = tuple[Link | None, Link | None]
"""Between ranks of a host, and of the host to others; None where there are no others."""


def measure(group: Group, hosts: Sequence[int], device: torch.device) -> list[Links]:
    """Returns every rank's links, in the group's order; `hosts` says each rank's host.

    Blocks until all ranks of the group have called it. All hosts measure at once, then all ranks
    that have one of the same number in every host: a host's network is what they get together.
    """
    inside, across = _partners(group.ranks, hosts, group.rank())
    link = _measured(_group_of(group, inside), device)
    _context.barrier(group)  # Or one lane would have the network before the others come.
    lane = _measured(_group_of(group, across), device)
    rows = _context.exchange(group, [*_whole(link), *_whole(lane)])
    network = together(hosts, [_link(*row[2:]) for row in rows])
    return [(_link(*row[:2]), network) for row in rows]


def together(hosts: Sequence[int], lanes: Sequence[Link | None]) -> Link | None:
    """Returns a host's network: what its lanes have, each as much as its slowest rank. Pure.

    `lanes` says what each rank measured; those of one number in their hosts share a lane.
    """
    before: Counter[int] = Counter()
    bandwidths: dict[int, list[float]] = {}
    for host, lane in zip(hosts, lanes, strict=True):
        if lane is not None:
            bandwidths.setdefault(before[host], []).append(lane.bandwidth)
        before[host] += 1
    if not bandwidths:
        return None
    latency = max(lane.latency for lane in lanes if lane is not None)
    return Link(sum(map(min, bandwidths.values())), latency)


def _partners(ranks: Sequence[int], hosts: Sequence[int], own: int) -> tuple[list[int], list[int]]:
    """Returns the ranks of this host, and those of its number in every host, if there is one. Pure.

    Each is empty if this rank is alone in it.
    """
    members: dict[int, list[int]] = {}
    for rank, host in zip(ranks, hosts, strict=True):
        members.setdefault(host, []).append(rank)
    inside = members[hosts[own]]
    number = inside.index(ranks[own])
    everywhere = number < min(map(len, members.values()))
    across = [each[number] for each in members.values()] if everywhere else []
    return (inside if len(inside) > 1 else [], across if len(across) > 1 else [])


def _group_of(group: Group, ranks: Sequence[int]) -> Group | None:
    if not ranks:
        return None
    return group if tuple(ranks) == group.ranks else _context.new_group(ranks)


def _measured(group: Group | None, device: torch.device) -> Link | None:
    """Returns what the group's ranks get of each other; None of no group."""
    if group is None:
        return None
    latency = median(_seconds(group, device, SMALL, 1) for _ in range(ROUNDS))
    size = PROBE
    seconds = _seconds(group, device, size, 1)
    slowest = max(row[0] for row in _context.exchange(group, [int(seconds * UNIT)])) / UNIT
    if slowest < SLOW:
        size = LARGE
        rounds = max(1, min(MOST_ROUNDS, int(WINDOW / max(slowest * LARGE / PROBE, 1 / UNIT))))
        seconds = median(_seconds(group, device, size, rounds) for _ in range(WINDOWS))
    part = 2 * (group.size() - 1) / group.size()  # Of the bytes: what a rank of a ring passes on.
    return Link(part * size / seconds, latency)


def _seconds(group: Group, device: torch.device, size: int, rounds: int) -> float:
    """Returns the seconds of an allreduce of so many bytes, the mean of some without a pause.

    So lanes that take turns, on few cores, do not each seem to have the whole way.
    """
    data = torch.zeros(size // 4, device=device)
    allreduce_(data, group=group)  # Makes what the first one makes.
    _wait(device)
    _context.barrier(group)
    start = perf_counter()
    for _ in range(rounds):
        allreduce_(data, group=group)
    _wait(device)
    return (perf_counter() - start) / rounds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _whole(link: Link | None) -> tuple[int, int]:
    return (int(link.bandwidth), int(link.latency * UNIT)) if link else (0, 0)


def _link(bandwidth: int, latency: int) -> Link | None:
    return Link(bandwidth, latency / UNIT) if bandwidth else None
