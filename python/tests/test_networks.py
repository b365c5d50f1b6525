"""By which network `corro run -H` connects hosts: where one of two leads nowhere, where there is
IPv6 alone, and where the variables of others name one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import netns
import pytest
import ssh
from test_several_hosts import OTHER, OWN, Cluster, script

pytestmark = pytest.mark.faults

MEETS = """
import os
import corro
import corro.numpy as cn

corro.init()
assert cn.allreduce(1.0, corro.Sum) == 2
print("at", os.environ["CORRO_LISTEN"], "of", os.environ["MASTER_ADDR"])
"""

Make = Callable[[netns.Hosts], Cluster]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    if reason := ssh.refusal():
        pytest.skip(reason)
    made: list[Cluster] = []

    def cluster_of(hosts: netns.Hosts) -> Cluster:
        made.append(Cluster(tmp_path, hosts))
        return made[-1]

    yield cluster_of
    for cluster in made:
        cluster.end()


def run(cluster: Cluster, directory: Path, hosts: str, *options: str) -> tuple[int, list[str], str]:
    arguments = ("--show", "all", "-H", hosts, *options, script(directory, MEETS))
    code, out, err = cluster.run(directory, *arguments)
    return code, sorted(out.splitlines()), err


def test_an_interface_that_leads_nowhere_is_not_taken(make: Make, tmp_path: Path) -> None:
    cluster = make(netns.Hosts(2, lonely=True))
    both = f"{OWN},{OTHER}"
    there = [f"[rank {rank}] at 10.77.0.{rank + 1} of 10.77.0.1" for rank in range(2)]
    assert run(cluster, tmp_path, both)[:2] == (0, there)
    for rule in ("GLOO_SOCKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME=^lonely,docker"):
        assert run(cluster, tmp_path, both, "--env", rule)[:2] == (0, there)
    code, _, err = run(cluster, tmp_path, both, "--env", "HOROVOD_GLOO_IFACE=lonely0")
    assert code == 2
    assert err.startswith(f"corro run: host {OWN}: {OTHER} does not reach it; it has 10.88.0.1")
    code, _, err = run(cluster, tmp_path, both, "--env", "GLOO_SOCKET_IFNAME=eth7")
    assert code == 2
    line = "has no interface by GLOO_SOCKET_IFNAME=eth7 with an address for others"
    assert err == f"corro run: host {OWN}: {line}; it has eth0, lonely0\n"
    network = ("--network", "10.77.0.0/16", "--env", "GLOO_SOCKET_IFNAME=eth7")
    assert run(cluster, tmp_path, both, *network)[:2] == (0, there)


def test_hosts_with_ipv6_alone_meet(make: Make, tmp_path: Path) -> None:
    hosts = netns.Hosts(2)
    hosts.use_ipv6_only()
    cluster = make(hosts)
    cluster.servers.know("fd77::2")
    code, out, err = run(cluster, tmp_path, f"{OWN},[fd77::2]")
    assert code == 0, err
    assert out == ["[rank 0] at fd77::1 of fd77::1", "[rank 1] at fd77::2 of fd77::1"]
