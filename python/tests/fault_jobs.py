"""Jobs of ranks without a launcher, with the scenarios of fault_worker.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("fault_worker.py")
VICTIM = 1


class Job:
    """Ranks that meet in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, scenario: str, ranks: int, **env: str) -> None:
        self.make_secret()
        for rank in range(ranks):
            self.start_rank(rank, scenario, ranks, **env)

    def make_secret(self) -> None:
        secret = self.directory / "secret"
        secret.touch(mode=0o600)
        secret.write_text(os.urandom(32).hex())

    def start_rank(self, rank: int, scenario: str, ranks: int, **env: str) -> None:
        place = {
            "CORRO_RANK": str(rank),
            "CORRO_SIZE": str(ranks),
            "CORRO_BOOTSTRAP": f"dir:{self.directory / 'meet'}",
            "CORRO_SECRET_FILE": str(self.directory / "secret"),
            "CORRO_JOB_ID": scenario,
            "CORRO_TIMEOUT": "60",
            "CORRO_DETERMINISTIC": "1",
            "OMP_NUM_THREADS": "1",
        }
        self.processes.append(
            subprocess.Popen(
                [sys.executable, str(WORKER), scenario],
                env={**os.environ, **place, **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def let_victim_go(self) -> None:
        """The others wait for nobody any more: see meet() of the worker."""
        for process in self.processes:
            process.stdout.readline()  # type: ignore[union-attr]
        stdin = self.processes[VICTIM].stdin
        stdin.write("\n")  # type: ignore[union-attr]
        stdin.flush()  # type: ignore[union-attr]

    def facts(self, index: int, say: str | None = None) -> dict[str, Any]:
        """Returns what the process started as this one printed last, once it has ended."""
        output, errors = self.processes[index].communicate(say, timeout=100)
        assert output, errors
        facts: dict[str, Any] = json.loads(output.splitlines()[-1])
        return facts

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
