"""Runs the corro program as a user does. The program: $CORRO_PROGRAM, else the one on PATH."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

# No test measures time; this only ends a test that hangs.
DEADLINE = 120.0


@dataclass
class Job:
    """A started launcher, in a directory of its own."""

    process: subprocess.Popen[bytes]
    logs: Path
    out: bytes = b""
    err: bytes = b""

    def wait(self) -> int:
        self.out, self.err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def log(self, rank: int) -> bytes:
        return (self.logs / f"rank-{rank}.log").read_bytes()

    def failure(self) -> dict[str, Any]:
        return json.loads((self.logs / "failure.json").read_text())

    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    def block(self) -> list[str]:
        """The lines of the failure's block; fails unless it is the last thing on stderr."""
        lines = self.err.decode().splitlines()
        first = max(i for i, line in enumerate(lines) if line.startswith("corro: "))
        block = lines[first:]
        assert all(line.startswith("  ") for line in block[1:]), block
        assert len(block) <= 12
        return block


@dataclass
class Launcher:
    program: str
    directory: Path
    jobs: list[Job] = field(default_factory=list)

    def script(self, text: str, name: str = "script.py") -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def start(
        self,
        *arguments: object,
        env: dict[str, str] | None = None,
        inside: Sequence[str] = (),
        **popen: Any,
    ) -> Job:
        logs = self.directory / f"logs-{len(self.jobs)}"
        # Whoever runs the tests in the background, or behind nohup, has some of them ignored.
        as_usual = ["env", "--default-signal=HUP,INT,QUIT"]
        run = [self.program, "run", "--log-dir", str(logs)]
        command = [*as_usual, *inside, *run, *map(str, arguments)]
        popen = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
        } | popen
        process = subprocess.Popen(
            command, cwd=self.directory, env=os.environ | (env or {}), **popen
        )
        job = Job(process, logs)
        self.jobs.append(job)
        return job

    def run(self, *arguments: object, **options: Any) -> Job:
        job = self.start(*arguments, **options)
        job.wait()
        return job


@pytest.fixture(scope="session")
def program() -> str:
    beside_python = str(Path(sys.executable).with_name("corro"))
    found = os.environ.get("CORRO_PROGRAM") or shutil.which("corro") or shutil.which(beside_python)
    if not found:
        pytest.fail("no corro program: set CORRO_PROGRAM or put it on PATH")
    return str(Path(found).resolve())


@pytest.fixture
def launcher(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    # What a scheduler or an outer job may have left in the environment.
    for name in list(os.environ):
        if name.startswith(("SLURM_", "CORRO_", "PET_", "OMPI_", "TORCHELASTIC_")):
            monkeypatch.delenv(name)
    made = Launcher(program, tmp_path)
    yield made
    for job in made.jobs:
        if job.process.poll() is None:
            job.process.kill()
            job.process.communicate()


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.01)


def pids_in(directory: Path, count: int) -> list[int]:
    """Waits until `count` processes have left a file named pid-<pid> in the directory."""

    def found() -> list[int]:
        return [int(path.name[4:]) for path in directory.glob("pid-*")]

    wait_until(lambda: len(found()) == count, f"{count} processes")
    return found()


@pytest.fixture(autouse=True)
def _plain_interrupts() -> Iterator[None]:
    """A test run from a background job inherits "ignore SIGINT"; the launcher would too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
