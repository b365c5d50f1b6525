"""`corro operator` as a child: its log, its pages, its end.

with OperatorProcess(kubeconfig, space) as operator:
    operator.wait_for("leads")
    operator.metrics()["corro_operator_leads"]

The story: it is started with a Lease in the namespace that it works in, so any number of tests'
operators work beside each other. A thread reads its log, a line of JSON each, into a list. It ends
by `stop` (SIGTERM, which has to end it with 0) or `kill` (SIGKILL); whatever a test left running is
killed at the end of the `with`, or with the process of the tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from harness import ROOT, wait_until

PROGRAM = os.environ.get("CORRO", str(ROOT / ".venv" / "bin" / "corro"))
SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$")


def wrong_clock(hours_ahead: int) -> dict[str, str]:
    """The variables of a program whose wall clock is wrong, and its monotonic one right."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{hours_ahead:+}h",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


class OperatorProcess:
    """One process. Its methods belong to one thread."""

    def __init__(
        self,
        kubeconfig: Path,
        space: str,
        *options: str,
        lock_space: str = "",
        hours_ahead: int = 0,
    ) -> None:
        """`hours_ahead`: of its wall clock."""
        command = ["setpriv", "--pdeathsig", "KILL", PROGRAM, "operator"]
        command += ["--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0"]
        command += ["--namespace", space, "--lock-namespace", lock_space or space]
        command += options
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (wrong_clock(hours_ahead) if hours_ahead else {}),
        )
        self._lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> OperatorProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                self._lines.append(json.loads(line))
            except ValueError:  # A sanitizer, or a message of the command line.
                self._lines.append({"level": "error", "what": line.strip()})

    def log(self, what: str = "") -> list[dict[str, Any]]:
        """The lines so far, all or those with that `what`."""
        return [line for line in list(self._lines) if what in ("", line.get("what"))]

    def wait_for(self, what: str, count: int = 1, seconds: float = 60) -> dict[str, Any]:
        """Returns the newest line with that `what`, once there are so many of them."""

        def found() -> dict[str, Any] | None:
            lines = self.log(what)
            ended = self._process.poll()
            assert ended is None or len(lines) >= count, f"ended with {ended}: {self._lines[-5:]}"
            return lines[-1] if len(lines) >= count else None

        line: dict[str, Any] = wait_until(found, f'"{what}" in the log: {self._lines}', seconds)
        return line

    def begin(self) -> OperatorProcess:
        """Waits until it leads."""
        self.wait_for("leads")
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def page(self, path: str) -> tuple[int, str]:
        """The status and text of one of its pages."""
        address = self.wait_for("starts")["pages"]
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> dict[str, float]:
        """What /metrics says: {'corro_operator_jobs{kind="MPIJob",state="Running"}': 1.0}."""
        status, text = self.page("/metrics")
        assert status == 200, text
        return parse_metrics(text)

    def api_calls(self) -> float:
        """Writes and reads of jobs that it has done; watches and the Lease not among them."""
        name = "corro_operator_api_calls_total{"
        return sum(value for key, value in self.metrics().items() if key.startswith(name))

    def memory(self) -> int:
        """What it has in memory, in KiB (VmRSS)."""
        return self._memory("VmRSS")

    def peak_memory(self) -> int:
        """The most it ever had in memory, in KiB (VmHWM)."""
        return self._memory("VmHWM")

    def _memory(self, field: str) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition(f"{field}:")[2].split()[0])

    def cpu_seconds(self) -> float:
        """Of all threads, those that have ended left out."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stops it meanwhile; what happens it sees afterwards."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ends it as Kubernetes does: SIGTERM, and an exit with 0."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(timeout=60) == 0, self._lines[-5:]
        self._reader.join()

    def kill(self) -> None:
        """SIGKILL; nothing if it has ended."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()


def parse_metrics(text: str) -> dict[str, float]:
    """Reads Prometheus' text format; fails on what does not have it."""
    types: dict[str, str] = {}
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, line
            types[name] = kind
        if line.startswith("#"):
            continue
        match = SAMPLE.match(line)
        assert match, line
        base = re.sub("_(bucket|sum|count)$", "", match[1])
        assert match[1] in types or types.get(base) == "histogram", f"no type: {line}"
        key = line.rpartition(" ")[0]
        assert key not in samples, f"twice: {line}"
        samples[key] = float(match[3])
    return samples
