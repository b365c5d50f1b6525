"""A job of a standalone coordinator, on this machine: coordinators, agents, and what ranks say."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import DEFAULTS
from etcd_server import free_ports

CORRO = Path(sys.executable).with_name("corro")
WORKER = Path(__file__).with_name("coordinator_worker.py")
PATIENCE = 120.0


def until(what: str, condition: Callable[[], Any], log: Callable[[], str] = str) -> Any:
    """Waits until the condition holds; returns what it gave."""
    end = time.monotonic() + PATIENCE
    while not (answer := condition()):
        assert time.monotonic() < end, f"it was waited in vain for: {what}\n{log()}"
        time.sleep(0.02)
    return answer


class Process:
    """A program of corro, and what it has printed."""

    def __init__(self, words: list[str], path: Path, environment: dict[str, str]) -> None:
        self.path = path
        with path.open("wb") as log:
            self.popen = subprocess.Popen(
                [str(CORRO), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=path.parent,
            )

    def log(self) -> str:
        return self.path.read_text(errors="replace")

    def says(self, text: str, log: Callable[[], str] | None = None) -> None:
        until(text, lambda: text in self.log(), log or self.log)

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def status(self) -> int:
        return self.popen.wait(timeout=PATIENCE)


class Job:
    """Coordinators have the numbers 0 and 1; each agent dials both."""

    def __init__(self, folder: Path, store: str = "", *options: str) -> None:
        self.folder = folder
        self.options = options
        self.said = folder / "said"
        self.said.mkdir()
        self.store = store or str(folder / "store")
        if not store:
            (folder / "store").mkdir()
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
        self.processes: list[Process] = []
        self.environment = {**os.environ, **DEFAULTS, "CORRO_SECRET_FILE": self.secret("secret")}

    def secret(self, name: str) -> str:
        path = self.folder / name
        path.write_text(secrets.token_hex(32))
        path.chmod(0o600)
        return str(path)

    def _start(self, name: str, words: list[str], **variables: str) -> Process:
        path = self.folder / f"{name}-{len(self.processes)}.log"
        process = Process(words, path, {**self.environment, **variables})
        self.processes.append(process)
        return process

    def coordinator(self, number: int, *options: str) -> Process:
        words = ["coordinator", "--store", self.store, "--listen", self.addresses[number]]
        words += ["--show", "all", "--log-dir", str(self.folder / "logs"), *self.options, *options]
        return self._start(
            f"coordinator-{number}", [*words, sys.executable, str(WORKER), str(self.said)]
        )

    def agent(self, host: str, *options: str, **variables: str) -> Process:
        words = ["agent", "--coordinator", ",".join(self.addresses), "--host", host, "--slots", "1"]
        return self._start(f"agent-{host}", [*words, *options], **variables)

    def mistake(self, words: list[str]) -> Process:
        return self._start("mistake", words)

    def facts(self) -> dict[int, list[dict[str, Any]]]:
        """What each rank's process has said, by process."""
        said = {}
        for path in self.said.glob("*.jsonl"):
            lines = path.read_text().splitlines(keepends=True)
            said[int(path.stem)] = [json.loads(line) for line in lines if line.endswith("\n")]
        return said

    def newest(self) -> dict[str, Any]:
        """The newest step of all."""
        last = [facts[-1] for facts in self.facts().values() if facts]
        return max(last, key=lambda fact: (fact["epoch"], fact["step"]), default={"step": 0})

    def steps(self, count: int) -> dict[str, Any]:
        """Waits for so many more steps."""
        first = self.newest()["step"]
        until(f"{count} steps", lambda: self.newest()["step"] >= first + count, self.logs)
        return self.newest()

    def size(self, ranks: int) -> None:
        """Waits until so many ranks step together."""
        until(f"{ranks} ranks", lambda: self.newest().get("size") == ranks, self.logs)

    def process_on(self, host: str) -> int:
        """Of the rank that runs on this host."""

        def there() -> list[int]:
            return [pid for pid, said in self.facts().items() if said and said[-1]["host"] == host]

        until(f"a rank on {host}", lambda: bool(there()), self.logs)
        return max(there(), key=lambda pid: Path(f"/proc/{pid}").exists())

    def finish(self) -> None:
        """Has the ranks end their work."""
        (self.said / "end").touch()

    def logs(self) -> str:
        return "\n".join(f"--- {one.path.name}\n{one.log()}" for one in self.processes)

    def end(self) -> None:
        for process in self.processes:
            process.send(signal.SIGCONT)
            process.kill()
        for pid in self.facts():
            until(f"the end of process {pid}", lambda pid=pid: not Path(f"/proc/{pid}").exists())
