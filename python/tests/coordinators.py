"""A job of a standalone coordinator, on this machine: coordinators, agents, and what ranks say."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from conftest import DEFAULTS
from etcd_server import free_ports
from said import PATIENCE, WORKER, Said, until

CORRO = Path(sys.executable).with_name("corro")


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


class Job(Said):
    """Coordinators have the numbers 0 and 1; each agent dials both."""

    def __init__(self, folder: Path, store: str = "", *options: str) -> None:
        super().__init__(folder)
        self.options = options
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

    def logs(self) -> str:
        return "\n".join(f"--- {one.path.name}\n{one.log()}" for one in self.processes)

    def end(self) -> None:
        for process in self.processes:
            process.send(signal.SIGCONT)
            process.kill()
        for pid in self.facts():
            until(f"the end of process {pid}", lambda pid=pid: not Path(f"/proc/{pid}").exists())
