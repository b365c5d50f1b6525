"""Rows of ranks that are lost and that join: how soon the others train on."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from jobs import BENCH, PYTHON, Effort, Family, corro_run
from rows import Row, missing, timed

WORKER = BENCH / "recover_worker.py"
RANKS = 3
FATAL = 105
PATIENCE = 240  # Seconds for a job.
BARS = {"kill": 1e6, "stop": 5e6, "join": 0.5e6, "coordinator": 10e6}  # Microseconds, of corro.


@dataclass(frozen=True)
class Step:
    when: int  # Nanoseconds.
    number: int
    size: int


@dataclass(frozen=True)
class History:
    """What the processes of a job have said, by process."""

    steps: list[list[Step]]
    fate: int  # When the victim's signal was sent; 0: never.

    @staticmethod
    def read(folder: Path) -> History:
        processes, fate = [], 0
        for path in folder.glob("*.txt"):
            lines = [line.split() for line in path.read_text().splitlines()]
            processes.append(
                [Step(int(t), int(n), int(size)) for word, t, n, *rest in lines
                 if word == "step" for size in rest]
            )  # fmt: skip
            fate = max([fate, *(int(line[1]) for line in lines if line[0] == "fate")])
        return History(processes, fate)

    def recovery(self) -> float:
        """From the signal to the moment in which the slowest process has done its next step.

        Microseconds. A process that came later counts like one that was there.
        """
        firsts = [
            next((step.when for step in steps if step.when > self.fate), None)
            for steps in self.steps
        ]
        return (max(when for when in firsts if when is not None) - self.fate) / 1e3

    def lost(self) -> int:
        """Steps that were done on all ranks before the signal, and again after it."""
        before = [step.number for steps in self.steps for step in steps if step.when < self.fate]
        after = [step.number for steps in self.steps for step in steps if step.when > self.fate]
        return max(0, max(before) - min(after)) if before and after else 0

    def stall(self) -> float:
        """By how much the step in which a rank joins takes longer than others. Microseconds."""
        worst = 0.0
        for steps in self.steps:
            pairs = list(pairwise(steps))
            gaps = [(after.when - before.when) / 1e3 for before, after in pairs]
            joins = [
                gap
                for gap, (before, after) in zip(gaps, pairs, strict=True)
                if after.size > before.size
            ]
            if joins:
                worst = max(worst, max(joins) - statistics.median(gaps))
        return worst


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


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def make_secret(folder: Path) -> Path:
    path = folder / "secret"
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)
    return path


def train(folder: Path, steps: int, fate: list[str], options: list[str]) -> None:
    command = corro_run(RANKS if fate else RANKS - 1, *options, str(PYTHON), str(WORKER))
    with started([*command, str(folder), str(steps), *fate], folder / "log") as job:
        job.wait(PATIENCE)


def history(run: Callable[[Path], None]) -> History | None:
    """Runs a job; None if it did not come to its end."""
    with tempfile.TemporaryDirectory(prefix="corro-bench-") as name:
        try:
            run(Path(name))
        except subprocess.TimeoutExpired:
            return None
        found = History.read(Path(name))
        if not any(found.steps):
            sys.exit(f"recover: no step\n{(Path(name) / 'log').read_text()}")
        return found


def lost_row(effort: Effort, case: str) -> Row:
    """A rank of three gets a signal."""
    options, fate = ["--min-np", "2"], [case, str(FATAL)]
    ended = [
        history(lambda folder: train(folder, FATAL + 100, fate, options))
        for _ in range(effort.of(10, 2))
    ]
    done = [one for one in ended if one is not None and one.fate]
    columns = {"case": case, "ranks": RANKS}
    if len(done) < len(ended):
        return missing("recover", {**columns, "lost": "the job", "max_us": None})
    times = [one.recovery() for one in done]
    lost = max(one.lost() for one in done)
    return timed(
        "recover",
        {**columns, "lost": lost, "max_us": max(times)},
        statistics.median(times),
        BARS[case],
    )


def join_row(effort: Effort) -> Row:
    """A rank joins two that train."""
    options = ["--max-np", str(RANKS)]
    stalls = []
    columns: dict[str, object] = {"case": "join", "ranks": RANKS}
    for _ in range(effort.of(10, 2)):
        found = history(lambda folder: train(folder, 1000, [], options))
        if found is None or not found.stall():
            return missing("recover", {**columns, "lost": "", "max_us": None})
        stalls.append(found.stall())
    columns |= {"lost": 0, "max_us": max(stalls)}
    return timed("recover", columns, statistics.median(stalls), BARS["join"])


def says(log: Path, text: str) -> None:
    """Waits until a log has it."""
    end = time.monotonic() + PATIENCE
    while text not in log.read_text():
        if time.monotonic() > end:
            sys.exit(f"recover: no {text!r} in {log.name}\n{log.read_text()}")
        time.sleep(0.002)


def take_over(folder: Path) -> tuple[float, int]:
    """Kills a coordinator beside one that stands by.

    Microseconds until all agents have met that one, and how many steps ranks did meanwhile.
    """
    (folder / "store").mkdir()
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    corro = corro_run(RANKS)[0]
    env = {"CORRO_SECRET_FILE": str(make_secret(folder))}
    logs = [folder / name for name in ("first", "second", "node1", "node2", "node3")]

    def lead(address: str, log: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
        options = ["--store", str(folder / "store"), "--listen", address, "-np", str(RANKS)]
        options += ["--min-np", "1", "--log-dir", str(folder / "logs")]
        job = [str(PYTHON), str(WORKER), str(folder), "1500"]
        return started([corro, "coordinator", *options, *job], log, **env)

    with ExitStack() as stack:
        first = stack.enter_context(lead(addresses[0], logs[0]))
        for log in logs[2:]:
            options = ["--coordinator", ",".join(addresses), "--host", log.name, "--slots", "1"]
            stack.enter_context(started([corro, "agent", *options], log, **env))
        for log in logs[2:]:
            says(log, "leads in term 1")
        while not any(History.read(folder).steps):
            time.sleep(0.1)
        second = stack.enter_context(lead(addresses[1], logs[1]))
        says(logs[1], "stands by")
        fate = time.monotonic_ns()
        first.kill()
        for log in logs[2:]:
            says(log, "leads in term 2")
        led = time.monotonic_ns()
        if second.wait(PATIENCE) != 0:
            sys.exit(f"recover: the job has failed\n{logs[1].read_text()}")
    steps = History.read(folder).steps
    between = [sum(fate < step.when < led for step in each) for each in steps]
    return (led - fate) / 1e3, min(between)


def coordinator_row(effort: Effort) -> Row:
    """The coordinator is killed, beside one that stands by; `lost`: steps that were done twice."""
    times = []
    for _ in range(effort.of(10, 2)):
        with tempfile.TemporaryDirectory(prefix="corro-bench-") as name:
            took, steps = take_over(Path(name))
            if steps == 0:
                sys.exit("recover: no step was done while nobody led")
            times.append(took)
    columns = {"case": "coordinator", "ranks": RANKS, "lost": 0, "max_us": max(times)}
    return timed("recover", columns, statistics.median(times), BARS["coordinator"])


def measure(effort: Effort) -> list[Row]:
    return [
        lost_row(effort, "kill"),
        lost_row(effort, "stop"),
        join_row(effort),
        coordinator_row(effort),
    ]


FAMILIES = {"recover": Family(measure, quick=False)}
