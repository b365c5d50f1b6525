"""A job spread over hosts that vanish by order; tests and benchmarks share it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import netns

WORKER = Path(__file__).with_name("lost_host_worker.py")


class Job:
    """Ranks spread over hosts, which vanish by order."""

    def __init__(self, directory: Path, hosts: int, ranks_a_host: int) -> None:
        self.directory = directory
        self.hosts = netns.Hosts(hosts)
        self.ranks_a_host = ranks_a_host
        self.ranks: list[subprocess.Popen[str]] = []
        self.cut_at = 0.0

    def start(self, scenario: str) -> None:
        """Starts all ranks with a scenario of lost_host_worker.py; waits until they are ready."""
        layout = [host for host in range(len(self.hosts.names)) for _ in range(self.ranks_a_host)]
        for rank, host in enumerate(layout):
            place = self.hosts.environment(self.directory, rank, layout)
            place |= {"CORRO_TIMEOUT": "100", "CORRO_DETERMINISTIC": "1", "OMP_NUM_THREADS": "1"}
            self.ranks.append(
                subprocess.Popen(
                    [*self.hosts.inside(host), sys.executable, str(WORKER), scenario],
                    env={**os.environ, **place},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        for rank in range(len(layout)):
            assert self.facts(rank)["ready"], rank

    def on(self, host: int) -> list[int]:
        return list(range(host * self.ranks_a_host, (host + 1) * self.ranks_a_host))

    def others(self, host: int) -> list[int]:
        return [rank for rank in range(len(self.ranks)) if rank not in self.on(host)]

    def facts(self, rank: int) -> dict[str, Any]:
        line = self.ranks[rank].stdout.readline()  # type: ignore[union-attr]
        assert line, f"rank {rank}: {self.ranks[rank].communicate(timeout=100)[1]}"
        facts: dict[str, Any] = json.loads(line)
        return facts

    def say(self, rank: int, line: str) -> None:
        stdin = self.ranks[rank].stdin
        assert stdin is not None
        stdin.write(line + "\n")
        stdin.flush()

    def cut(self, host: int) -> None:
        """Cuts the host's cable, and keeps when."""
        self.cut_at = time.monotonic()
        self.hosts.cut(host)

    def lose_host(self, scenario: str, host: int) -> float:
        """Cuts a host off while all ranks are `in_operations` or `at_rest`; returns the seconds
        until all survivors know."""
        self.start(scenario)
        self.cut(host)
        for rank in self.others(host):
            self.say(rank, str(self.ranks_a_host))  # How many are lost, to those at rest.
        return self.seconds_until_known(host)

    def seconds_until_known(self, host: int) -> float:
        """Returns how long after the cut the last survivor knew. Each names a rank of the host."""
        slowest = 0.0
        for rank in self.others(host):
            facts = self.facts(rank)
            assert facts["error"] == "RankLostError", facts
            assert facts["culprit"] in self.on(host), facts
            assert "its host does not answer" in facts["message"], facts
            slowest = max(slowest, facts["at"] - self.cut_at)
        return slowest

    def end(self) -> None:
        for process in self.ranks:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        self.hosts.end()
