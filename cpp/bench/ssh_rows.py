"""Rows of two hosts that ssh joins: how soon their ranks run, beside what others need for that, and
how soon nothing is left after the launcher was killed."""

from __future__ import annotations

import os
import select
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from cluster import NETWORK, OTHER, OWN, Cluster, hosts_with_ssh, ssh
from jobs import PYTHON, Effort, Family, note
from launcher_rows import FAMILY, wait_for_end
from rows import Row, compared, missing, timed

WORKER = "print('here')"
FIRST_LINE_BAR = 1e6  # Microseconds.
SSH_BAR = 0.2e6  # Beyond ssh.
KILL_BARS = {"end of ssh seen": 1e6, "cut off": 12e6}

Columns = dict[str, object]


def columns_of(case: str, times: Sequence[float] = (), said: str = "") -> Columns:
    """The columns of rows of several hosts."""
    return {"case": case, "hosts": 2, "ranks": 2, "min_us": min(times, default=None), "note": said}


def until_lines(cluster: Cluster, *commands: list[str]) -> float:
    """From the start of the commands, together, until both workers have printed their line."""
    start = time.perf_counter()
    pipe, environment = subprocess.PIPE, dict(cluster.environment)
    jobs = [subprocess.Popen(one, env=environment, stdout=pipe, stderr=pipe) for one in commands]
    took = read_lines([job.stdout for job in jobs if job.stdout], start)
    for job in jobs:
        said = job.communicate(timeout=60)[1].decode()
        if job.returncode != 0:
            sys.exit(f"hosts_first_line: {' '.join(commands[0])}: {job.returncode}\n{said}")
    return took


def read_lines(streams: list[IO[bytes]], start: float) -> float:
    """Returns when the second line is there, in microseconds."""
    lines = 0
    while streams:
        for stream in select.select(streams, [], [], 60)[0]:
            read = os.read(stream.fileno(), 4096)
            if not read:
                streams.remove(stream)
            lines += read.count(b"here")
            if lines >= 2:
                return (time.perf_counter() - start) * 1e6
    sys.exit(f"hosts_first_line: {lines} of 2 lines")


def ssh_alone(cluster: Cluster) -> float:
    """From the start of ssh to its end, with a Python over there that does nothing."""
    start = time.perf_counter()
    command = cluster.command("ssh", OTHER, f"{PYTHON} -c pass")
    subprocess.run(command, env=dict(cluster.environment), check=True)
    return (time.perf_counter() - start) * 1e6


def corro(cluster: Cluster) -> float:
    return until_lines(cluster, cluster.corro_run(str(PYTHON), "-c", WORKER))


def mpirun(cluster: Cluster) -> float:
    options = ["--host", f"{OWN}:1,{OTHER}:1", "--mca", "plm_rsh_agent", "ssh"]
    for layer in ("btl_tcp", "oob_tcp"):
        options += ["--mca", f"{layer}_if_include", NETWORK]
    if os.geteuid() == 0:
        options.append("--allow-run-as-root")
    return until_lines(cluster, cluster.command("mpirun", *options, str(PYTHON), "-c", WORKER))


def torchrun(cluster: Cluster) -> float:
    """One on each host, started at once."""
    program = str(PYTHON.with_name("torchrun"))
    meet = ["--nnodes", "2", "--master-addr", OWN, "--master-port", "29500"]
    words = [[program, *meet, "--node-rank", str(node), "--no-python"] for node in range(2)]
    there = f'{" ".join(words[1])} {PYTHON} -c "{WORKER}"'
    return until_lines(
        cluster,
        cluster.command(*words[0], str(PYTHON), "-c", WORKER),
        cluster.command("ssh", OTHER, there),
    )


PEERS: dict[str, Callable[[Cluster], float]] = {
    "corro": corro,
    "ssh": ssh_alone,
    "mpirun": mpirun,
    "torchrun x 2": torchrun,
}
PROGRAMS = {"mpirun": "mpirun", "torchrun x 2": str(PYTHON.with_name("torchrun"))}


def lacking(peer: str) -> str:
    """Why a peer cannot be measured, or nothing."""
    program = PROGRAMS.get(peer)
    return f"no {program}" if program and shutil.which(program) is None else ""


def measure_first_line(effort: Effort) -> list[Row]:
    if refusal := ssh.refusal():
        return [missing("hosts_first_line", columns_of(peer, said=refusal)) for peer in PEERS]
    there = [peer for peer in PEERS if not lacking(peer)]
    taken: dict[str, list[float]] = {peer: [] for peer in there}
    with hosts_with_ssh() as cluster:
        for _ in range(effort.of(10, 3)):
            for peer in there:
                note(f"hosts_first_line: {peer}")
                taken[peer].append(PEERS[peer](cluster))
    return [first_line_row(peer, taken) for peer in PEERS]


def first_line_row(peer: str, taken: dict[str, list[float]]) -> Row:
    """corro has a bar in microseconds; in a peer's row the ratio is corro's time by the peer's."""
    if peer not in taken:
        return missing("hosts_first_line", columns_of(peer, said=lacking(peer)))
    columns, median = columns_of(peer, taken[peer]), statistics.median(taken[peer])
    if peer == "corro":
        bar = min(FIRST_LINE_BAR, statistics.median(taken["ssh"]) + SSH_BAR)
        return timed("hosts_first_line", columns, median, bar)
    ratio = statistics.median(taken["corro"]) / median
    return compared("hosts_first_line", columns, median, ratio, 1.0 if peer == "mpirun" else None)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_launcher(cluster: Cluster, case: str) -> float:
    """From kill -9 of the launcher to the end of the last rank, child of a rank and agent."""
    command = cluster.corro_run(str(PYTHON), "-S", "-c", FAMILY)
    environment = dict(cluster.environment)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, text=True) as launcher:
        assert launcher.stdout is not None
        lines = [launcher.stdout.readline() for _ in range(2)]
        pids = {int(pid) for line in lines for pid in line.split("pids")[1].split()}
        [remote] = [line for line in lines if line.startswith("[rank 1]")]
        pids.add(parent_of(int(remote.split()[3])))  # What guards the agent over there.
        processes = [os.pidfd_open(pid) for pid in pids]
        if case == "cut off":
            cluster.hosts.cut(0)
        start = time.perf_counter()
        launcher.kill()
        try:
            wait_for_end(processes)
            return (time.perf_counter() - start) * 1e6
        finally:
            if case == "cut off":
                cluster.hosts.mend(0)


def measure_kill(effort: Effort) -> list[Row]:
    if refusal := ssh.refusal():
        return [missing("hosts_kill", columns_of(case, said=refusal)) for case in KILL_BARS]
    rows = []
    with hosts_with_ssh() as cluster:
        for case, bar in KILL_BARS.items():
            note(f"hosts_kill: {case}")
            times = [kill_launcher(cluster, case) for _ in range(effort.of(5, 1))]
            rows.append(timed("hosts_kill", columns_of(case, times), statistics.median(times), bar))
    return rows


FAMILIES = {
    "hosts_first_line": Family(measure_first_line),
    "hosts_kill": Family(measure_kill),
}
