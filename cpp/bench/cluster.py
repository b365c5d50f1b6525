"""Hosts of benchmarks: the namespaces of the tests, with an sshd in each."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from jobs import CORRO, ROOT

sys.path.insert(0, str(ROOT / "python/tests"))

import lost_hosts as lost_hosts  # Hosts of tests and of benchmarks are the same.
import netns as netns
import ssh as ssh

OWN, OTHER, NETWORK = "10.77.0.1", "10.77.0.2", "10.77.0.0/24"


class Cluster:
    """Hosts; commands are run on the first, which has a key to the others."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.hosts = netns.Hosts(count)
        self._servers = ssh.Servers(self.hosts, folder / "ssh")
        self._logs = folder / "logs"

    @property
    def environment(self) -> Mapping[str, str]:
        return self._servers.environment()

    def command(self, *words: str) -> list[str]:
        return [*self.hosts.inside(0), *words]

    def corro_run(self, *words: str) -> list[str]:
        """A rank on each host; `words` may begin with options."""
        others = [self.hosts.address(host) for host in range(1, len(self.hosts.names))]
        hosts = ",".join(["localhost", *others])
        options = ("--log-dir", str(self._logs), "--show", "all", "-H", hosts)
        return self.command(str(CORRO), "run", *options, *words)

    def end(self) -> None:
        self._servers.end()
        self.hosts.end()


@contextmanager
def hosts_with_ssh(count: int = 2) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="corro-bench-") as folder:
        cluster = Cluster(Path(folder), count)
        try:
            yield cluster
        finally:
            cluster.end()


def mounts_refusal() -> str:
    """Says why a process can have no mounts of its own here, or nothing."""
    return "" if os.system("unshare -m true 2> /dev/null") == 0 else "unshare -m is not permitted"
