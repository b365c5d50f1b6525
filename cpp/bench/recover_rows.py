"""Rows of ranks that are lost, that join and that leave: how soon the others train on."""

from __future__ import annotations

import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cluster
import recover_peers
from jobs import BENCH, CORRO, PROGRAMS, PYTHON, Effort, Family, corro_run, note, run
from processes import PATIENCE, free_ports, says, started
from recover_history import History, history
from recover_peers import RANKS
from rows import Row, compared, missing, timed

WORKER = BENCH / "recover_worker.py"
FATAL = 105
BARS = {
    "kill": 1e6,
    "stop": 5e6,
    "host": 6e6,
    "join": 0.5e6,
    "leave": 0.5e6,
    "coordinator": 10e6,
    "members": 1e6,
}  # Microseconds, of corro.
PEER_BARS = {"kill": 1.0, "stop": 1.0}  # Corro's time by the peer's.

Job = Callable[[Path, Sequence[str]], None]


def make_secret(folder: Path) -> Path:
    path = folder / "secret"
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)
    return path


def train(ranks: int, options: Sequence[str], folder: Path, order: Sequence[str]) -> None:
    command = corro_run(ranks, *options, str(PYTHON), str(WORKER), str(folder), *order)
    with started(command, folder / "log") as job:
        job.wait(PATIENCE)


@dataclass(frozen=True)
class Figure:
    """What a job was measured for."""

    time: float | None  # Microseconds; None: there is none.
    lost: int | str  # Steps; or what was lost as a whole.


def recovery(found: History | None) -> Figure:
    time = found.recovery() if found and found.fate else None
    if found is None or time is None:
        return Figure(None, "the job")
    return Figure(time, found.lost()) if found.keeps_model() else Figure(None, "the model")


def stall(found: History | None) -> Figure:
    time = found.stall() if found else 0.0
    return Figure(time, 0) if time else Figure(None, "the join")


def measured(job: Job, order: Sequence[str], figure: Callable[[History | None], Figure]) -> Figure:
    return figure(history(lambda folder: job(folder, order)))


def in_turns(
    rounds: int,
    jobs: dict[str, Job],
    order: Sequence[str],
    figure: Callable[[History | None], Figure],
) -> dict[str, list[Figure]]:
    """Runs each job once a round. Who has failed is not run again: that takes minutes."""
    figures: dict[str, list[Figure]] = {name: [] for name in jobs}
    for number in range(rounds):
        for name, job in jobs.items():
            if all(one.time for one in figures[name]):
                note(f"recover, round {number + 1}: {name}")
                figures[name].append(measured(job, order, figure))
    return figures


def rows_of(case: str, figures: dict[str, list[Figure]]) -> list[Row]:
    """Corro's row has a bar in microseconds, a peer's one has corro's time by the peer's."""
    [own, *_] = figures.values()
    return [row_of(case, name, own, each) for name, each in figures.items()]


def row_of(case: str, name: str, own: Sequence[Figure], figures: Sequence[Figure]) -> Row:
    times = [one.time for one in figures if one.time]
    columns: dict[str, object] = {"case": case, "peer": name, "ranks": RANKS}
    if len(times) < len(figures):
        columns |= {"lost": figures[-1].lost, "max_us": None, "median_ms": None}
        # That a peer does not recover is its figure.
        return missing("recover", columns) if name == "corro" else Row("recover", columns, None)
    median = statistics.median(times)
    columns |= {"lost": max(one.lost for one in figures)} | of_times(times)
    if name == "corro":
        return timed("recover", columns, median, BARS[case])
    if not all(one.time for one in own):
        return timed("recover", columns, median)
    ratio = statistics.median(one.time for one in own if one.time) / median
    return compared("recover", columns, median, ratio, PEER_BARS.get(case))


def of_times(times: Sequence[float]) -> dict[str, object]:
    return {"max_us": max(times), "median_ms": statistics.median(times) / 1e3}


def lost_rows(effort: Effort, case: str) -> list[Row]:
    """A rank of three gets a signal."""
    jobs: dict[str, Job] = {
        "corro": partial(train, RANKS, ["--min-np", "2"]),
        "torchrun": recover_peers.torchrun,
    }
    if recover_peers.has_torchft():
        jobs["torchft"] = recover_peers.torchft
    order = [str(FATAL + 100), case, str(FATAL)]
    return rows_of(case, in_turns(effort.of(10, 2), jobs, order, recovery))


def join_rows(effort: Effort) -> list[Row]:
    """A rank joins two that train. Torchrun would start all of them again."""
    jobs: dict[str, Job] = {"corro": partial(train, RANKS - 1, ["--max-np", str(RANKS)])}
    if recover_peers.has_torchft():
        jobs["torchft"] = recover_peers.torchft_join
    return rows_of("join", in_turns(effort.of(10, 2), jobs, ["1000"], stall))


def wait_for_steps(folder: Path, count: int) -> None:
    end = time.monotonic() + PATIENCE
    while not any(len(steps) >= count for steps in History.read(folder).steps):
        if time.monotonic() > end:
            raise TimeoutError(f"{count} steps")
        time.sleep(0.05)


def cut_host(folder: Path, order: Sequence[str]) -> None:
    """Two ranks are on this host, and one is on another, whose cable is cut."""
    with cluster.hosts_with_ssh() as hosts:
        options = ["--log-dir", str(folder / "logs"), "--min-np", str(RANKS - 1)]
        where = ["-H", f"localhost:{RANKS - 1},{cluster.OTHER}:1"]
        job = [str(PYTHON), str(WORKER), str(folder), *order]
        command = hosts.command(str(CORRO), "run", *options, *where, *job)
        with started(command, folder / "log", **hosts.environment) as launcher:
            wait_for_steps(folder, FATAL)
            (folder / "cut.txt").write_text(f"fate {time.monotonic_ns()} 0\n")
            hosts.hosts.cut(1)
            launcher.wait(PATIENCE)


def host_rows(effort: Effort) -> list[Row]:
    if refusal := cluster.netns.refusal():
        note(f"recover: no hosts: {refusal}")
        return []
    jobs: dict[str, Job] = {"corro": cut_host}
    return rows_of("host", in_turns(effort.of(5, 1), jobs, [str(FATAL + 100)], recovery))


def take_slot(folder: Path, order: Sequence[str]) -> None:
    """Three ranks run, and one of three slots is taken away."""
    slots = folder / "slots"
    slots.write_text(f"localhost:{RANKS}\n")
    options = ["--host-discovery", f"cat {slots}", "--min-np", str(RANKS - 1)]
    job = [str(PYTHON), str(WORKER), str(folder), *order]
    with started(corro_run(RANKS, *options, *job), folder / "log") as launcher:
        wait_for_steps(folder, FATAL)
        slots.write_text(f"localhost:{RANKS - 1}\n")
        launcher.wait(PATIENCE)


def leave_rows(effort: Effort) -> list[Row]:
    jobs: dict[str, Job] = {"corro": take_slot}
    return rows_of("leave", in_turns(effort.of(10, 2), jobs, ["1000"], stall))


def members_row() -> Row:
    """1024 members lose one: the coordinator's own processor time until the next epoch begins."""
    line = run([str(PROGRAMS / "members_corro")])[-1]
    own = {"case": "members", "peer": "corro", "ranks": line["members"], "lost": 0}
    columns = own | {"max_us": line["max_us"], "median_ms": line["median_us"] / 1e3}
    return timed("recover", columns, line["median_us"], BARS["members"])


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
    own = {"case": "coordinator", "peer": "corro", "ranks": RANKS}
    columns = {**own, "lost": 0} | of_times(times)
    return timed("recover", columns, statistics.median(times), BARS["coordinator"])


def measure(effort: Effort) -> list[Row]:
    return [
        *lost_rows(effort, "kill"),
        *lost_rows(effort, "stop"),
        *host_rows(effort),
        *join_rows(effort),
        *leave_rows(effort),
        coordinator_row(effort),
        members_row(),
    ]


FAMILIES = {"recover": Family(measure, quick=False)}
