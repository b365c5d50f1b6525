"""Rows of large allreduces between hosts, by the ranks alone and with servers on other hosts: in
network namespaces made here, with links of 1 Gbit/s each way."""

from __future__ import annotations

import statistics
import subprocess
import sys

from cluster import Cluster, hosts_with_ssh, ssh
from jobs import BENCH, PYTHON, Effort, Family, Line, lines_of, note
from rows import Columns, Row, missing

RANKS, SERVERS = 4, 4
RATE = "1gbit"
MIB = (4, 16, 64)
CORRO, RING = "corro, 4 servers", "corro ring"
WAYS = {
    CORRO: ("--servers", str(SERVERS)),
    RING: ("--env", "CORRO_ALGORITHMS=allreduce=ring"),
}
BARS = {64 << 20: 1.4}  # Of the ring's time by that with servers, at least.


def columns_of(size: int, peer: str, said: str = "") -> Columns:
    return {"bytes": size, "hosts": RANKS + SERVERS, "ranks": RANKS, "peer": peer, "note": said}


def measure_way(cluster: Cluster, options: tuple[str, ...], rounds: int) -> list[Line]:
    script = [str(PYTHON), str(BENCH / "served_allreduce.py"), str(rounds), *map(str, MIB)]
    command = cluster.corro_run(*options, "-np", str(RANKS), *script)
    environment = dict(cluster.environment)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode != 0:
        sys.exit(f"served: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return lines_of(done.stdout)


def measure_served(effort: Effort) -> list[Row]:
    if refusal := ssh.refusal():
        return [missing("served", columns_of(mib << 20, CORRO, refusal)) for mib in MIB]
    taken: dict[tuple[str, int], list[Line]] = {}
    with hosts_with_ssh(RANKS + SERVERS) as cluster:
        cluster.hosts.limit(RATE)
        for _ in range(effort.rounds):
            for peer, options in WAYS.items():
                note(f"served: {peer}")
                for line in measure_way(cluster, options, effort.of(7, 3)):
                    taken.setdefault((peer, int(line["bytes"])), []).append(line)
    return [row_of(peer, size, taken) for peer, size in taken]


def row_of(peer: str, size: int, taken: dict[tuple[str, int], list[Line]]) -> Row:
    """In corro's row the ratio is the median, over the rounds, of the ring's time by its own."""
    found = taken[peer, size]
    median = statistics.median(line["median_us"] for line in found)
    by_servers = sum(line["served"] for line in found)
    said = f"servers took part in {by_servers} of {len(found)} rounds" if peer == CORRO else ""
    columns = columns_of(size, peer, said)
    if peer == RING:
        return Row("served", columns, median)
    pairs = zip(taken[RING, size], found, strict=True)
    ratio = statistics.median(ring["median_us"] / one["median_us"] for ring, one in pairs)
    bar = BARS.get(size)
    return Row("served", columns, median, ratio, bar, bar is None or ratio >= bar)


FAMILIES = {"served": Family(measure_served, quick=False)}
