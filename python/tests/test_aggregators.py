"""Servers that take part in large allreduces: the bits are those of the ranks alone."""

from __future__ import annotations

import re
from pathlib import Path

import netns
import pytest
import ssh
from conftest import HERE, Launch
from test_several_hosts import Cluster

WORKER = str(HERE / "aggregators_worker.py")
ALONE = "allreduce=ring"
SERVED = f"{ALONE},allreduce:1M-=served"


def counts(output: str) -> tuple[int, int]:
    """Returns how many allreduces servers took part in, with and without success, on each rank."""
    found = set(re.findall(r"served=(\d+) in_vain=(\d+)", output))
    assert len(found) == 1, output
    served, in_vain = found.pop()
    return int(served), int(in_vain)


def bits(launch: Launch, case: str, ranks: int, servers: int, rules: str) -> tuple[str, str]:
    """Returns the digest that all ranks agree on, and the job's output."""
    options = ("--servers", str(servers)) if servers else ()
    env = {"CORRO_TRANSPORT": "tcp", "CORRO_ALGORITHMS": rules}
    output = launch(WORKER, case, ranks=ranks, options=options, **env).check().output
    found = re.findall(rf"{case}: ([0-9a-f]{{64}})", output)
    assert len(found) == ranks, output
    assert len(set(found)) == 1, output
    return found[0], output


@pytest.mark.parametrize(("ranks", "servers"), [(2, 1), (3, 2)])
def test_servers_give_the_bits_of_the_ring(launch: Launch, ranks: int, servers: int) -> None:
    alone, _ = bits(launch, "exact", ranks, 0, ALONE)
    served, output = bits(launch, "exact", ranks, servers, SERVED)
    assert served == alone
    assert f"allreduce of 1048576 bytes and more: served by {servers} aggregator" in output
    assert counts(output) == (12, 0)


@pytest.mark.parametrize("case", ["killed", "stopped"])
def test_a_server_that_is_lost_costs_nothing_but_time(launch: Launch, case: str) -> None:
    alone, _ = bits(launch, case, 3, 0, ALONE)
    served, output = bits(launch, case, 3, 2, SERVED)
    assert served == alone
    if case == "killed":
        assert "was lost: killed by SIGKILL" in output
    took_part, in_vain = counts(output)
    assert took_part > 0
    assert in_vain > 0
    assert took_part + in_vain == {"killed": 36, "stopped": 3}[case]


def test_an_optimizer_has_them_without_a_changed_line(launch: Launch) -> None:
    alone, _ = bits(launch, "torch", 3, 0, ALONE)
    served, output = bits(launch, "torch", 3, 2, SERVED)
    assert served == alone
    took_part, in_vain = counts(output)
    assert took_part > 0
    assert in_vain == 0


@pytest.mark.faults
@pytest.mark.beside
def test_links_decide_where_servers_have_hosts_of_their_own(tmp_path: Path) -> None:
    if reason := ssh.refusal():
        pytest.skip(reason)
    cluster = Cluster(tmp_path, netns.Hosts(6))
    try:
        cluster.hosts.limit("1gbit")
        hosts = ",".join(["localhost", *(cluster.hosts.address(host) for host in range(1, 6))])
        options = ("--show", "all", "--servers", "3", "-np", "3", "-H", hosts)
        code, out, err = cluster.run(tmp_path, *options, WORKER, "exact")
        assert code == 0, err
        assert "served by 3 aggregators" in out
        assert len(set(re.findall("exact: ([0-9a-f]{64})", out))) == 1
        code, out, err = cluster.run(
            tmp_path, "--show", "all", "-np", "3", "-H", hosts, WORKER, "exact"
        )
        assert code == 0, err
        assert "aggregator" not in out
    finally:
        cluster.end()
