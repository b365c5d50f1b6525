"""Which hosts there are, as a script of the user's says."""

from __future__ import annotations

import subprocess


class HostDiscoveryScript:
    """A command that prints a line for each host: "node7:4", or "node7".

    `corro run` asks the script of an elastic job itself. This is for programs that want to know.
    """

    def __init__(self, discovery_script: str, slots: int | None) -> None:
        """`slots`: of hosts of which the script does not say it; None: it always does."""
        self._discovery_script = discovery_script
        self._default_slots = slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Runs the script and returns the slots by host; blocks until it has ended.

        Raises:
            RuntimeError: the script has failed.
            ValueError: a line has no slots, and there is no default.
        """
        hosts: dict[str, int] = {}
        for line in self._execute_discovery_script().split():
            name, colon, slots = line.rpartition(":")
            if not colon and self._default_slots is None:
                raise ValueError(f"{self._discovery_script}: how many slots has {line}?")
            hosts[name if colon else line] = int(slots) if colon else self._default_slots or 0
        return hosts

    def _execute_discovery_script(self) -> str:
        job = subprocess.run(
            self._discovery_script, shell=True, capture_output=True, text=True, check=False
        )
        if job.returncode != 0:
            why = job.stderr.strip() or "it says nothing"
            raise RuntimeError(f"{self._discovery_script}: status {job.returncode}: {why}")
        return job.stdout
