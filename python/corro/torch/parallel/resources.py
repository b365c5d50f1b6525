"""What a job's ranks can do, as the cluster that corro.plan() takes.

    cluster = resources_of(corro.world(), torch.device("cpu"))
    planned = corro.plan(description, cluster)

Every rank says what it is and measures what it can (capability.py, links.py), all at once, since
busy neighbours count. The ranks exchange their reports, and each makes the same cluster of them:
device d of the cluster is rank d of the group.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import floor, inf, log10
from typing import Any

import torch

from corro import _context
from corro._context import Group
from corro._objects import allgather_object
from corro.errors import InvalidArgumentError
from corro.model import LayerRun, LayerType, ModelDescription, Operator
from corro.planner import plan
from corro.torch.parallel import capability, links
from corro.torch.parallel.capability import RankReport
from corro.torch.parallel.links import Link

NOISE = 1.2
"""The ratio up to which figures are of equal machines; of copies, which vary more, its square."""
WIDER = (NOISE, 1.5, 2.0, 4.0, inf)
"""What counts as noise where there would be more kinds of hosts than the planner takes."""
MOST_KINDS = 3
"""Of hosts that follow each other, in one plan."""
PROBE = ModelDescription(
    name="probe",
    types=(LayerType(name="layer", operators=(Operator(name="one", flops=2, output=1),)),),
    layers=(LayerRun(type=0),),
)
"""Plans in a millisecond on any cluster, and so shows whether a cluster is one."""
_EFFICIENCIES = (
    *("matmul_efficiency", "memory_efficiency"),
    *("link_efficiency", "network_efficiency"),
)


@dataclass(slots=True)
class _Part:
    """Ranks of one host with the same device, one after the other; figures are the slowest's."""

    host: int
    key: tuple[str, int, str]
    devices: int
    memory: float
    peak: dict[str, float]
    memory_bandwidth: float
    link: Link | None
    kind: int = 0

    def is_like(self, other: _Part, noise: float) -> bool:
        """Returns whether both are equal machines, if measuring was off by `noise` at most."""
        if self.key != other.key:
            return False
        if self.key[2]:  # Its figures are published.
            return True
        pairs = [
            (self.peak[dtype], other.peak[dtype]) for dtype in self.peak.keys() & other.peak.keys()
        ]
        pairs.append((self.memory, other.memory))
        copies = (self.memory_bandwidth, other.memory_bandwidth)
        return max(copies) <= noise**2 * min(copies) and all(
            max(pair) <= noise * min(pair) for pair in pairs
        )


def resources_of(
    group: Group, device: torch.device, dtype: torch.dtype = torch.float32
) -> Mapping[str, object]:
    """Returns the cluster that the group's ranks are: what corro.plan(cluster=...) takes.

    Blocks until all ranks of the group have called it, and measures for less than a second. The
    result is the same on all ranks: device d is rank d of the group.

    Args:
        group: ranks, of which those of a host follow each other.
        device: on which this rank is to compute, a "cpu" or a "cuda".
        dtype: of the model, the same on all ranks.

    Raises:
        InvalidArgumentError: on every rank: ranks are not numbered host by host, or a rank's device
            cannot be measured.
    """
    return cluster_of(reports_of(group, device, dtype))


def reports_of(
    group: Group,
    device: torch.device,
    dtype: torch.dtype,
    known: RankReport | None = None,
    folder: str | None = None,
) -> list[RankReport]:
    """Returns what each of the group's ranks is, as resources_of() does.

    Args:
        known: this rank's report, of an earlier epoch. Where all ranks know theirs nothing is
            measured; a rank that does not measures itself, and all measure their links.
        folder: to offload to, whose disk is measured, too.
    """
    nodes = _context.nodes()
    hosts = [nodes[rank] for rank in group.ranks]
    _check_order(group.ranks, hosts)
    own: RankReport | str | None = known
    is_known = all(row[0] for row in _context.exchange(group, [known is not None]))
    try:
        own = own or capability.report_of(hosts[group.rank()], device, dtype, folder)
    except Exception as error:  # Whatever torch says of the device: the others wait to hear it.
        own = f"parallelize: resources: rank {group.ranks[group.rank()]}: {_line(error)}"
    reports: list[RankReport | str] = allgather_object(own, group=group)
    for each in reports:
        if isinstance(each, str):
            raise InvalidArgumentError(each)
    found = [
        replace(report, host=host)
        for report, host in zip(reports, hosts, strict=True)
        if isinstance(report, RankReport)
    ]
    if is_known:
        return found
    measured = links.measure(group, hosts, device)
    return [
        replace(report, link=link, network=network)
        for report, (link, network) in zip(found, measured, strict=True)
    ]


def cluster_of(reports: Sequence[RankReport]) -> dict[str, object]:
    """Returns the cluster file's fields; device d is the rank of the d-th report. Pure.

    Figures within NOISE of each other become one device type with the slowest's, in two digits. A
    host whose ranks differ becomes several, which its own links join.
    """
    parts = _parts_of(reports)
    types = _types_of(parts)
    network = _slowest(report.network for report in reports)
    if network is None:  # One host; if cut into several, its own links join them.
        network = _slowest(report.link for report in reports)
    hosts = _hosts_of(parts, types, network)
    for host in hosts if all(report.disk for report in reports) else ():
        host.update(_disk(reports, int(str(host["devices"]))))
    cluster: dict[str, object] = {"corro_cluster": 1, "name": "job", "hosts": hosts}
    if described := {name: fields for name, fields in types if fields}:
        cluster["devices"] = described
    if len({part.host for part in parts}) < len(parts):
        cluster["matrix"] = _matrix(parts, network)
    return cluster


def calibration_of(reports: Sequence[RankReport]) -> dict[str, float] | None:
    """Returns what corro.plan(params=...) takes for cluster_of() the same reports. Pure.

    What was measured is what training reaches. None, for the planner's own numbers: of a device
    published figures are taken, or its operators were not measured.
    """
    if any(report.known or not report.operator for report in reports):
        return None
    links = [link for each in reports for link in (each.link, each.network) if link is not None]
    collective = max((link.latency for link in links), default=0.0)
    operator = max(report.operator for report in reports)
    return {
        "corro_calibration": 1,
        **dict.fromkeys(_EFFICIENCIES, 1.0),
        "collective_seconds": min(max(collective, 1e-6), 1e-2),
        "operator_seconds": min(max(operator, 1e-7), 5e-3),
    }


def checked_resources(resources: object, ranks: int) -> object:
    """Returns what the user gave as a cluster, if the planner takes it and has a device a rank.

    Args:
        resources: the path of a cluster file, or a mapping with its fields.
        ranks: of the job.

    Raises:
        InvalidArgumentError: it is no cluster, or it has more or fewer devices.
        NotFoundError: there is no such file.
    """
    cluster: Any = plan(PROBE, resources, strategies=["data"]).document["cluster"]
    devices = sum(host.get("count", 1) * host.get("devices", 1) for host in cluster["hosts"])
    if devices == ranks:
        return resources
    is_path = isinstance(resources, (str, os.PathLike))
    name = os.path.basename(str(resources)) if is_path else cluster["name"]
    raise InvalidArgumentError(
        f"parallelize: resources: {name} has {_count(devices, 'device')}, and the job "
        f"{_count(ranks, 'rank')}: each rank is one device"
    )


def check_offload(resources: Any) -> None:
    """Raises InvalidArgumentError if the hosts of a cluster have nothing to offload to."""
    try:
        plan(PROBE, resources, strategies=["data", "offload"], pins={"offload": "optimizer"})
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            "parallelize: resources: no host has to_host_memory, which offloading needs: the "
            "bytes/s of its disk"
        ) from error


def _check_order(ranks: Sequence[int], hosts: Sequence[int]) -> None:
    """Raises InvalidArgumentError unless the ranks of each host follow each other."""
    last: dict[int, int] = {}
    for place, host in enumerate(hosts):
        if last.get(host, place - 1) != place - 1:
            raise InvalidArgumentError(
                f"parallelize: resources: ranks {ranks[last[host]]} and {ranks[place]} are on one "
                f"host, and rank {ranks[place - 1]} between them is not: number the ranks host by "
                "host, as `corro run -H a:2,b:2` does"
            )
        last[host] = place


def _parts_of(reports: Sequence[RankReport]) -> list[_Part]:
    """Returns what the ranks are, in their order: for each host a part, if its ranks are alike."""
    sharers = capability.sharers_of((report.host, report.memory) for report in reports)
    parts = []
    for key, group in groupby(reports, lambda report: _key(report, sharers)):
        host, same = key[0], list(group)
        dtypes = set(same[0].peak).intersection(*(report.peak for report in same))
        parts.append(
            _Part(
                host=host,
                key=key[1:],
                devices=len(same),
                memory=min(capability.share_of(host, each.memory, sharers) for each in same),
                peak={dtype: min(report.peak[dtype] for report in same) for dtype in dtypes},
                memory_bandwidth=min(report.memory_bandwidth for report in same),
                link=_slowest(report.link for report in same),
            )
        )
    return parts


def _key(report: RankReport, sharers: Counter[tuple[int, str]]) -> tuple[int, str, int, str]:
    """Returns what ranks of one part have in common. A GPU of several ranks is no known device."""
    alone = all(sharers[report.host, limit] == 1 for limit, _ in report.memory)
    return (report.host, report.device, report.threads, report.known if alone else "")


def _types_of(parts: list[_Part]) -> list[tuple[str, dict[str, object]]]:
    """Numbers the parts' kinds, and returns for each the device type's name, and its fields.

    A known device type has none.
    """
    for noise in WIDER:
        kinds = _number_kinds(parts, noise)
        if len(list(groupby(parts, _shape))) <= MOST_KINDS:
            break
    names = Counter(kind[0].key[0] for kind in kinds if not kind[0].key[2])
    used: Counter[str] = Counter()
    types: list[tuple[str, dict[str, object]]] = []
    for members in kinds:
        name, _, known = members[0].key
        if known:
            types.append((known, {}))
            continue
        number = used[name]
        used[name] += 1
        types.append((name if names[name] == 1 else f"{name}-{number}", _fields(members)))
    return types


def _number_kinds(parts: Sequence[_Part], noise: float) -> list[list[_Part]]:
    """Makes equal machines one kind, and returns the kinds, in the order of their first parts."""
    kinds: list[list[_Part]] = []
    for part in sorted(parts, key=lambda part: max(part.peak.values()), reverse=True):
        found = next((kind for kind in kinds if part.is_like(kind[0], noise)), None)
        if found is None:
            kinds.append(found := [])
        found.append(part)
    position = {id(part): place for place, part in enumerate(parts)}
    kinds.sort(key=lambda kind: min(position[id(part)] for part in kind))
    for number, kind in enumerate(kinds):
        for part in kind:
            part.kind = number
    return kinds


def _fields(members: Sequence[_Part]) -> dict[str, object]:
    """Returns a device type: the slowest member's figures."""
    dtypes = set(members[0].peak).intersection(*(part.peak for part in members))
    peak = {dtype: min(part.peak[dtype] for part in members) for dtype in sorted(dtypes)}
    return {
        "memory": _rounded_down(min(part.memory for part in members)),
        "peak": {dtype: _rounded(flops) for dtype, flops in peak.items()},
        "memory_bandwidth": _rounded(min(part.memory_bandwidth for part in members)),
    }


def _hosts_of(
    parts: Sequence[_Part],
    types: Sequence[tuple[str, dict[str, object]]],
    network: Link | None,
) -> list[dict[str, object]]:
    """Returns the groups of equal hosts, in the order of ranks."""
    hosts: list[dict[str, object]] = []
    first = 0
    for (kind, devices), same in groupby(parts, _shape):
        count = len(list(same))
        host: dict[str, object] = {
            "name": "host" if count > 1 else f"host{first}",
            "count": count,
            "first": first if count > 1 else 0,
            "device": types[kind][0],
            "devices": devices,
        }
        if devices > 1:
            host["link"] = _link(_slowest(part.link for part in parts if part.kind == kind))
        if len(parts) > 1:
            host["network"] = _link(network)
        hosts.append(host)
        first += count
    return hosts


def _shape(part: _Part) -> tuple[int, int]:
    """Returns what adjacent hosts have in common if they are equal."""
    return (part.kind, part.devices)


def _matrix(parts: Sequence[_Part], network: Link | None) -> list[list[float]]:
    """Returns bytes/s between the parts, of which some are of one host."""

    def between(one: _Part, other: _Part) -> float:
        if one.host != other.host or one.link is None:
            return float(_link(network)["bandwidth"])
        return _rounded(one.link.bandwidth * min(one.devices, other.devices))

    return [[between(one, other) for other in parts] for one in parts]


def _disk(reports: Sequence[RankReport], devices: int) -> dict[str, object]:
    """Returns of a host of so many devices what it can offload to, at the least."""
    ranks = Counter(report.host for report in reports)
    shares = (report.disk_left / ranks[report.host] for report in reports)
    return {
        "to_host_memory": _link(Link(min(report.disk for report in reports), 0.0)),
        "host_memory": devices * _rounded_down(min(shares)),
    }


def _slowest(measured: Iterable[Link | None]) -> Link | None:
    """Returns the narrowest bandwidth and the longest latency; None if nothing was measured."""
    found = [link for link in measured if link is not None]
    if not found:
        return None
    return Link(min(link.bandwidth for link in found), max(link.latency for link in found))


def _link(link: Link | None) -> dict[str, float]:
    assert link is not None, "ranks that are joined have measured by what"
    return {"bandwidth": _rounded(max(1.0, link.bandwidth)), "latency": _rounded(link.latency)}


def _rounded(figure: float) -> float:
    return float(f"{figure:.2g}")


def _rounded_down(figure: float) -> float:
    """In two digits, and never more than there is."""
    unit = 10.0 ** (floor(log10(max(1.0, figure))) - 1)
    return max(1.0, floor(figure / unit) * unit)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _line(error: Exception) -> str:
    """Returns the first line of what it says."""
    return (str(error).splitlines() or [type(error).__name__])[0]
