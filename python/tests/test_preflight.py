"""`corro doctor -H`: hosts are checked before a job, by real ssh between network namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netns
import pytest
import ssh

pytestmark = pytest.mark.faults
OWN, SECOND, THIRD = "localhost", "10.77.0.2", "10.77.0.3"
USUAL, SLOW = "200mbit", "20mbit"  # Far below what this machine does by itself.
DEADLINE = 60


class Cluster:
    """Three hosts with cables of one speed; the doctor is on the first."""

    def __init__(self, directory: Path) -> None:
        self.hosts = netns.Hosts(3)
        self.hosts.limit(USUAL)
        self.servers = ssh.Servers(self.hosts, directory / "ssh")
        beside_python = str(Path(sys.executable).with_name("corro"))
        self.program = os.environ.get("CORRO_PROGRAM") or beside_python

    def doctor(self, *arguments: str) -> tuple[int, str, str]:
        command = [*self.hosts.inside(0), self.program, "doctor", *arguments]
        environment = self.servers.environment() | {"VIRTUAL_ENV": sys.prefix}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE, env=environment, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def json(self, *hosts: str) -> tuple[int, dict[str, Any]]:
        code, out, err = self.doctor("--json", "-H", ",".join(hosts))
        assert not err
        return code, json.loads(out)

    def tc(self, host: int, *words: str) -> None:
        netns.sh("tc", "-n", self.hosts.names[host], *words)

    def limit_port(self, host: int, rate: str) -> None:
        """What the host sends and receives."""
        shape = ("root", "tbf", "rate", rate, "burst", "32kb", "latency", "20ms")
        self.tc(host, "qdisc", "replace", "dev", "eth0", *shape)
        switch = ("tc", "-n", self.hosts.switch, "qdisc", "replace", "dev", f"port{host}")
        netns.sh(*switch, *shape)

    def end(self) -> None:
        self.servers.end()
        self.hosts.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reason = ssh.refusal()
    if reason:
        pytest.skip(reason)
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.end()


def of_kind(report: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [finding for finding in report["findings"] if finding["kind"] == kind]


def test_sound_hosts_are_measured_and_nothing_is_found(cluster: Cluster) -> None:
    code, report = cluster.json(OWN, SECOND)
    # This machine may have little shared memory, which is a finding by right.
    assert [finding for finding in report["findings"] if finding["kind"] != "memory"] == []
    assert code == (1 if report["findings"] else 0)
    assert [host["host"] for host in report["hosts"]] == [OWN, SECOND]
    for host in report["hosts"]:
        assert host["failure"] is None
        assert host["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
        assert host["kernel"] == os.uname().release
        assert host["memory_free_bytes"] > 0
        assert abs(host["clock_ahead_seconds"]) <= host["clock_error_seconds"] + 0.01
    assert [(link["from"], link["to"]) for link in report["links"]] == [
        (OWN, SECOND),
        (SECOND, OWN),
    ]
    for link in report["links"]:
        assert 0 < link["bits_per_second"] < 400e6
        assert link["round_trip_seconds"] > 0


def test_people_get_a_table(cluster: Cluster) -> None:
    _, out, err = cluster.doctor("-H", f"{OWN}:4,{SECOND}:4")
    assert not err, "progress is for terminals"
    assert out.startswith("2 hosts checked in ")
    assert "2 of 2 links between them measured" in out
    rows = [line.split() for line in out.splitlines()]
    assert {row[0] for row in rows if os.uname().machine in row} == {OWN, SECOND}
    assert {tuple(row[:3]) for row in rows if "Mbit/s" in row} == {
        (OWN, SECOND, SECOND),
        (SECOND, OWN, "10.77.0.1"),
    }


def test_of_many_hosts_each_is_measured_with_some(cluster: Cluster, tmp_path: Path) -> None:
    shell = tmp_path / "rsh"
    shell.write_text('#!/bin/sh\nexec sh -c "$2"\n')
    shell.chmod(0o755)
    names = [f"node{i}" for i in range(20)]
    _, out, err = cluster.doctor("--json", "-H", ",".join(names), "--rsh", str(shell))
    assert not err
    report = json.loads(out)
    assert not of_kind(report, "no answer")
    assert len(report["links"]) == 20 * 19
    measured = [link for link in report["links"] if link["bits_per_second"]]
    assert 5 * 20 <= len(measured) < 20 * 19
    assert {link["from"] for link in measured} == {link["to"] for link in measured} == set(names)


def test_a_slow_host_is_named(cluster: Cluster) -> None:
    cluster.limit_port(2, SLOW)
    try:
        code, report = cluster.json(OWN, SECOND, THIRD)
    finally:
        cluster.limit_port(2, USUAL)
    assert code == 1
    [finding] = of_kind(report, "slow")
    assert finding["hosts"] == [THIRD]
    assert finding["what"].startswith(f"{THIRD} is slow: it sends ")


def test_a_slow_link_is_named_with_its_ends(cluster: Cluster) -> None:
    # Only what the second host sends to the third one is slow.
    device = ("dev", "eth0")
    cluster.tc(1, "qdisc", "replace", *device, "root", "handle", "1:", "htb", "default", "1")
    for number, rate in ((1, USUAL), (2, SLOW)):
        words = ("parent", "1:", "classid", f"1:{number}", "htb", "rate", rate, "burst", "32kb")
        cluster.tc(1, "class", "add", *device, *words)
    match = ("u32", "match", "ip", "dst", f"{THIRD}/32", "flowid", "1:2")
    cluster.tc(1, "filter", "add", *device, "parent", "1:", "protocol", "ip", *match)
    try:
        code, report = cluster.json(OWN, SECOND, THIRD)
    finally:
        cluster.tc(1, "qdisc", "del", *device, "root")
        cluster.limit_port(1, USUAL)
    assert code == 1
    [finding] = of_kind(report, "slow")
    assert finding["hosts"] == [SECOND, THIRD]
    assert finding["what"].startswith(f"{SECOND} to {THIRD} is slow: ")


def test_a_host_that_lets_nothing_in_is_named(cluster: Cluster) -> None:
    # New connections to the third host are lost, but those to its sshd.
    device = ("dev", "eth0")
    tcp = ("u32", "match", "ip", "protocol", "6", "0xff")
    rule = ("filter", "add", *device, "parent", "ffff:", "protocol", "ip", "prio")
    cluster.tc(2, "qdisc", "add", *device, "ingress")
    try:
        cluster.tc(2, *rule, "1", *tcp, "match", "ip", "dport", "22", "0xffff", "classid", "1:1")
        lose = ("action", "mirred", "egress", "redirect", "dev", "lo")
        cluster.tc(2, *rule, "2", *tcp, "match", "u8", "0x02", "0x12", "at", "33", *lose)
        code, report = cluster.json(OWN, SECOND, THIRD)
    finally:
        cluster.tc(2, "qdisc", "del", *device, "ingress")
    assert code == 1
    [finding] = of_kind(report, "unreachable")
    assert finding["hosts"] == [THIRD]
    assert f"{THIRD} is not reached from any other host, at 10.77.0.3" in finding["what"]
    assert "one way only" in finding["what"]
    assert "firewall" in finding["do"]
    measured = {(link["from"], link["to"]) for link in report["links"] if link["bits_per_second"]}
    assert measured == {(OWN, SECOND), (SECOND, OWN), (THIRD, OWN), (THIRD, SECOND)}


def test_every_host_is_tried_and_each_failure_is_a_finding(cluster: Cluster) -> None:
    names = (OWN, "no-such-host.invalid", SECOND, "10.77.0.9")
    code, report = cluster.json(*names)
    assert code == 1
    failures = of_kind(report, "no answer")
    assert [finding["hosts"] for finding in failures] == [["no-such-host.invalid"], ["10.77.0.9"]]
    assert "spelt right" in failures[0]["do"]
    assert len([link for link in report["links"] if link["bits_per_second"]]) == 2


def test_a_host_without_corro_is_named(cluster: Cluster, tmp_path: Path) -> None:
    shell = tmp_path / "rsh"
    shell.write_text('#!/bin/sh\nexec ssh "$1" "exec /nowhere/corro agent"\n')
    shell.chmod(0o755)
    code, out, _ = cluster.doctor("-H", f"{OWN},{SECOND}", "--rsh", str(shell))
    assert code == 1
    assert f"{SECOND}: no corro at " in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-H", f"{OWN}:0"), "slots are 1 to 1024"),
        (("-H", f"{OWN},{OWN}"), "is there twice"),
        (("--hostfile", "none"), "--hostfile none: no such file"),
        (("-H", OWN, "--network", "10.0.0.0/40"), "--network 10.0.0.0/40"),
        (("-H", OWN, "--hostfile", "x"), "excludes"),
        (("-H", OWN, "4711"), "excludes"),
        (("--network", "10.0.0.0/8"), "give them with -H"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    cluster: Cluster, arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = cluster.doctor(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("corro doctor: ")
    assert len(err.splitlines()) == 1
    assert words in err
