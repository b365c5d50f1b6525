"""Hosts of a job, as Horovod writes them, and which rank is where."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

_HOST = re.compile(r"(?P<name>[\w.-]+|\[[0-9A-Fa-f:.]+(%[\w.-]+)?\]):(?P<slots>[0-9]+)")

_OWN = ("localhost", "127.0.0.1", "::1")


@dataclass
class HostInfo:
    """A host and how many ranks it takes."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Reads "node7:4" or "[fe80::7]:4"; ValueError if it is something else."""
        found = _HOST.fullmatch(host_string)
        if found is None:
            raise ValueError(
                "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2 "
                f"(not {host_string!r})."
            )
        return HostInfo(found["name"].strip("[]"), int(found["slots"]))


@dataclass
class SlotInfo:
    """Where a rank is: its ranks on its host, and among hosts that have its local rank."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Reads "a:2,b:4"; ValueError names what is wrong."""
    return [HostInfo.from_string(host) for host in hosts_string.split(",")]


def parse_host_files(filename: str) -> str:
    """Returns the hosts of a file with a line such as "node7 slots=4" for each as "node7:4,..."."""
    hosts = []
    with open(filename) as file:
        for line in file:
            words = line.split("#")[0].split()
            if words:
                slots = next((w.split("=")[1] for w in words if w.startswith("slots=")), "1")
                name = words[0].strip("[]")
                hosts.append(f"[{name}]:{slots}" if ":" in name else f"{name}:{slots}")
    return ",".join(hosts)


def under_one_name(hosts: Sequence[HostInfo]) -> str:
    """Returns the hosts as "a:2,b:4", with this host once: its names for itself are the same."""
    slots: dict[str, int] = {}
    own = next((host.hostname for host in hosts if host.hostname in _OWN), "")
    for host in hosts:
        name = own if host.hostname in _OWN else host.hostname
        slots[name] = slots.get(name, 0) + host.slots
    names = {name: f"[{name}]" if ":" in name else name for name in slots}
    return ",".join(f"{names[name]}:{slots[name]}" for name in slots)


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Fills hosts in their order; ValueError if there are fewer slots than `min_num_proc`."""
    slots = sum(host.slots for host in hosts)
    if slots < min_num_proc:
        raise ValueError(
            f"Requested more processes ({min_num_proc}) than there are available slots ({slots})"
        )
    left = min(slots, max_num_proc or min_num_proc)
    places: list[tuple[str, int, int]] = []  # Host, local rank, number among hosts that have it.
    local_sizes: dict[str, int] = {}
    cross_sizes: dict[int, int] = defaultdict(int)
    for host in hosts:
        local_sizes[host.hostname] = min(host.slots, left)
        for local_rank in range(local_sizes[host.hostname]):
            places.append((host.hostname, local_rank, cross_sizes[local_rank]))
            cross_sizes[local_rank] += 1
        left -= local_sizes[host.hostname]
    return [
        SlotInfo(
            hostname=hostname,
            rank=rank,
            local_rank=local_rank,
            cross_rank=cross_rank,
            size=len(places),
            local_size=local_sizes[hostname],
            cross_size=cross_sizes[local_rank],
        )
        for rank, (hostname, local_rank, cross_rank) in enumerate(places)
    ]
