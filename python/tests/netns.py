"""Hosts of a test: network namespaces of this machine, joined by a bridge in one of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path


def sh(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


class Hosts:
    """So many hosts 10.77.0.1, 10.77.0.2, ... that reach each other. With `lonely` each has a first
    interface lonely0, too, with an address of its own by which nobody reaches it."""

    def __init__(self, count: int, *, lonely: bool = False) -> None:
        self.prefix = f"corro{os.getpid()}"
        self.switch = f"{self.prefix}-switch"
        self.names: list[str] = []
        self.made: list[str] = []
        self._add(self.switch)
        sh("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        sh("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for host in range(count):
            name = f"{self.prefix}-{host}"
            self._add(name)
            self.names.append(name)
            if lonely:
                cable = ("link", "add", f"lonely{host}", "type", "veth", "peer", "name", "lonely0")
                sh("ip", "-n", self.switch, *cable, "netns", name)  # In no bridge.
                sh("ip", "-n", self.switch, "link", "set", f"lonely{host}", "up")
                sh("ip", "-n", name, "address", "add", f"10.88.{host}.1/24", "dev", "lonely0")
                sh("ip", "-n", name, "link", "set", "lonely0", "up")
            port = ("link", "add", f"port{host}", "type", "veth", "peer", "name", "eth0")
            sh("ip", "-n", self.switch, *port, "netns", name)
            sh("ip", "-n", self.switch, "link", "set", f"port{host}", "master", "bridge", "up")
            sh("ip", "-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            sh("ip", "-n", name, "link", "set", "eth0", "up")
            sh("ip", "-n", name, "link", "set", "lo", "up")

    def _add(self, name: str) -> None:
        sh("ip", "netns", "add", name)
        self.made.append(name)

    @staticmethod
    def address(host: int) -> str:
        return f"10.77.0.{host + 1}"

    def inside(self, host: int) -> Sequence[str]:
        """Returns what starts a program on the host."""
        return ("ip", "netns", "exec", self.names[host])

    def limit(self, rate: str) -> None:
        """Bounds every host's cable in both directions, such as to "1gbit"."""
        shape = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "20ms")
        for host, name in enumerate(self.names):
            sh("tc", "-n", name, "qdisc", "add", "dev", "eth0", *shape)
            sh("tc", "-n", self.switch, "qdisc", "add", "dev", f"port{host}", *shape)

    def environment(self, directory: Path, rank: int, layout: Sequence[int]) -> dict[str, str]:
        """Returns what a rank of a job needs; `layout` says each rank's host. The job meets in the
        directory, which is its own."""
        secret = directory / "secret"
        if not secret.exists():
            secret.touch(mode=0o600)
            secret.write_text(os.urandom(32).hex())
        return {
            "CORRO_RANK": str(rank),
            "CORRO_SIZE": str(len(layout)),
            "CORRO_BOOTSTRAP": f"dir:{directory / 'meet'}",
            "CORRO_SECRET_FILE": str(secret),
            "CORRO_JOB_ID": directory.name,
            "CORRO_LISTEN": self.address(layout[rank]),
        }

    def use_ipv6_only(self) -> None:
        """Makes them fd77::1, fd77::2, ... instead."""
        for host, name in enumerate(self.names):
            new = ("address", "add", f"fd77::{host + 1}/64", "dev", "eth0", "nodad")
            sh("ip", "-n", name, *new)
            sh("ip", "-n", name, "-4", "address", "flush", "dev", "eth0")

    def cut(self, host: int) -> None:
        """Cuts the cable of the host, at the switch: the host keeps its own addresses."""
        sh("ip", "-n", self.switch, "link", "set", f"port{host}", "down")

    def part(self, one: int, other: int) -> None:
        """Cuts what is between two hosts, and nothing else."""
        route = ("route", "add", "blackhole", f"{self.address(other)}/32")
        sh("ip", "-n", self.names[one], *route)

    def join(self, one: int, other: int) -> None:
        """Undoes part()."""
        route = ("route", "delete", "blackhole", f"{self.address(other)}/32")
        sh("ip", "-n", self.names[one], *route)

    def mend(self, host: int) -> None:
        """Plugs the cable in again."""
        sh("ip", "-n", self.switch, "link", "set", f"port{host}", "up")

    def end(self) -> None:
        for name in self.made:
            subprocess.run(("ip", "netns", "delete", name), check=False, capture_output=True)


def refusal() -> str:
    """Says why no hosts can be made here, or nothing."""
    probe = Hosts.__new__(Hosts)
    probe.made = []
    try:
        probe.__init__(1)  # type: ignore[misc]
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces: {getattr(error, 'stderr', None) or error}"
    finally:
        probe.end()
    return ""
