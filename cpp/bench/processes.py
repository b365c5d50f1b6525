"""Processes that a row starts, and ends with all that they have started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 240  # Seconds for a job.


@contextmanager
def started(command: list[str], log: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a group of its own, which is ended with all that it has started."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **env}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_all(argument: str) -> None:
    """Ends all that were started with an argument: torchrun gives each rank a group of its own."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # It has ended.
            if os.fsencode(argument) in file.read_bytes().split(b"\0"):
                os.kill(int(file.parent.name), signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_until(true: Callable[[], bool], seconds: float, pause: float = 0.02) -> None:
    """Looks again after each pause, in seconds; raises TimeoutError at the end of its time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(pause)


def says(log: Path, text: str) -> None:
    """Waits until a log has it."""
    try:
        wait_until(lambda: text in log.read_text(), PATIENCE, pause=0.002)
    except TimeoutError:
        sys.exit(f"recover: no {text!r} in {log.name}\n{log.read_text()}")
