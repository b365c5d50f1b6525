"""An etcd of the test's own on loopback, from Debian's package."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0


@cache
def find_program() -> tuple[Path | None, str]:
    """etcd, or why there is none. CORRO_TEST_ETCD_PROGRAM names another one."""
    if given := os.environ.get("CORRO_TEST_ETCD_PROGRAM"):
        return Path(given), ""
    run = subprocess.run(
        [ROOT / "tools/unpacked_packages.sh", "etcd"], capture_output=True, text=True, check=False
    )
    lines = (run.stderr if run.returncode else run.stdout).splitlines() or ["no word why"]
    if run.returncode:
        return None, f"no etcd: {lines[-1]}"
    return Path(lines[-1]) / "usr/bin/etcd", ""


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Etcd:
    """A cluster of one. Its data outlive kill(), for another start()."""

    def __init__(self, folder: Path, tls: Sequence[str] = ()) -> None:
        program, reason = find_program()
        assert program, reason
        self.folder = folder
        self.port, peers, metrics = free_ports(3)
        self.address = f"127.0.0.1:{self.port}"
        scheme = "https" if tls else "http"
        self._health = f"http://127.0.0.1:{metrics}/health"
        self._command = [
            *(str(program), "--data-dir", str(folder / "data"), *tls),
            *("--listen-client-urls", f"{scheme}://{self.address}"),
            *("--advertise-client-urls", f"{scheme}://{self.address}"),
            *("--listen-peer-urls", f"http://127.0.0.1:{peers}"),
            # Without certificates, whatever clients have to show.
            *("--listen-metrics-urls", f"http://127.0.0.1:{metrics}"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once it answers."""
        with (self.folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = time.monotonic() + PATIENCE
        while not self._is_healthy():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(self._health, timeout=1) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False

    def log(self) -> str:
        return (self.folder / "etcd.log").read_text(errors="replace")[-4000:]

    def send(self, number: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None
