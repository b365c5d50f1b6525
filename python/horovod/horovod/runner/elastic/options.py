"""What Horovod's options of elastic jobs are for `corro run`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from horovod.runner.common.util.hosts import parse_host_files, parse_hosts

MOST = 64  # Ranks, where nobody says how many may join. Each has a log that is open.


@dataclass(frozen=True)
class Elastic:
    """What was asked for, by Horovod's names; None: nothing."""

    min_num_proc: int | None = None
    max_num_proc: int | None = None
    slots: int | None = None
    elastic_timeout: int | None = None
    reset_limit: int | None = None
    cooldown_range: Sequence[int] | None = None
    host_discovery_script: str | None = None

    def is_asked_for(self) -> bool:
        """Returns whether the job is elastic."""
        wants = (self.min_num_proc, self.max_num_proc, self.host_discovery_script)
        return any(want is not None for want in wants)

    def options(self, num_proc: int, hosts: str | None, hostfile: str | None) -> list[str]:
        """Returns options of `corro run`; none for a job that is not elastic.

        Args:
            num_proc: ranks that the job begins with.
            hosts: those that were given.
            hostfile: in which they are.

        Raises:
            ValueError: what was asked for cannot be.
        """
        self._check()
        if not self.is_asked_for():
            return []
        most = self._most(num_proc, hosts, hostfile)
        options = ["--min-np", str(self.min_num_proc or num_proc), "--max-np", str(most)]
        if self.host_discovery_script:
            options += ["--host-discovery", self._discovery()]
        timeout = self.elastic_timeout or os.environ.get("HOROVOD_ELASTIC_TIMEOUT")
        if timeout:
            options += ["--elastic-timeout", str(timeout)]
        if self.reset_limit is not None:
            options += ["--reset-limit", str(self.reset_limit)]
        if self.cooldown_range:
            options += ["--back-off", ",".join(map(str, self.cooldown_range))]
        return options

    def _check(self) -> None:
        if not self.is_asked_for() and (self.reset_limit, self.cooldown_range) != (None, None):
            raise ValueError("a reset limit and a cooldown range are for elastic jobs")
        if self.slots is not None and not self.host_discovery_script:
            raise ValueError("slots per host are for hosts that a script discovers")

    def _most(self, num_proc: int, hosts: str | None, hostfile: str | None) -> int:
        """Ranks for which there may be slots."""
        if self.host_discovery_script:
            return self.max_num_proc or max(num_proc, MOST)
        if not hosts and not hostfile:
            return self.max_num_proc or num_proc
        named = parse_hosts(hosts or parse_host_files(str(hostfile)))
        slots = sum(host.slots for host in named)
        return min(self.max_num_proc or slots, slots)

    def _discovery(self) -> str:
        script = str(self.host_discovery_script)
        if self.slots is None:
            return script
        names_a_host = r"^[^:[:space:]]\{1,\}$"
        return (
            f"found=$({script}) || exit; printf '%s\\n' \"$found\" | "
            f"sed 's/{names_a_host}/&:{self.slots}/'"
        )
