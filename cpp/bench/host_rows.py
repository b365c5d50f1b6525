"""Rows of hosts, in network namespaces made here: an allreduce over two hosts of four ranks, and
how soon all survivors know of a host that vanished."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from cluster import lost_hosts, netns
from jobs import PROGRAMS, Effort, Family, lines_of
from rows import Row, compared, timed

HOSTS, RANKS = 2, 8
RATE = "1gbit"
SIZES = [4 << 20, 16 << 20, 64 << 20]
LAYOUT = [rank * HOSTS // RANKS for rank in range(RANKS)]

# What has to cross a host's link each way for each byte of the vector, and what the best flat
# schedule sends there: a ring, in which one rank of a host has its neighbour elsewhere.
TWO_LEVEL = 2 * (HOSTS - 1) / HOSTS
FLAT = 2 * (RANKS - 1) / RANKS
LINK_BAR = 0.93  # At least.
FLAT_BAR = 1.05  # At most.


VANISHED_RANKS = 4
VANISHED_BAR = 5e6  # Microseconds.


# One end of a connection; both ends send and receive at once, as ranks do, and print MB/s.
STREAM = """
import socket, sys, threading, time
mine, other, total = sys.argv[1], sys.argv[2], 128 << 20
listener = socket.create_server((mine, 5999))
print("ready", flush=True)
sys.stdin.readline()
out = socket.create_connection((other, 5999))
into, _ = listener.accept()
def send():
    chunk = bytes(1 << 20)
    for _ in range(total >> 20):
        out.sendall(chunk)
threading.Thread(target=send).start()
buffer, got = bytearray(1 << 20), 0
while got < total:
    got += into.recv_into(buffer)
    if got >= total // 4 and "start" not in globals():
        start, before = time.perf_counter(), got
print((total - before) / (time.perf_counter() - start) / 1e6)
"""


def payload_rate(hosts: netns.Hosts) -> float:
    """Returns the bytes a microsecond that the slower direction of the link carries."""
    ends = []
    for host in range(HOSTS):
        places = [hosts.address(host), hosts.address(1 - host)]
        command = [*hosts.inside(host), sys.executable, "-c", STREAM, *places]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        ends.append(subprocess.Popen(command, text=True, **pipes))
    for end in ends:
        end.stdout.readline()
    for end in ends:
        end.stdin.write("go\n")
        end.stdin.flush()
    return min(float(end.communicate(timeout=60)[0]) for end in ends)


def corro(hosts: netns.Hosts, program: str, rules: str, arguments: list[str]) -> str:
    """Runs the driver on every rank; returns what rank 0 prints."""
    directory = Path(tempfile.mkdtemp(prefix="corro-bench-"))
    ranks = []
    for rank, host in enumerate(LAYOUT):
        place = hosts.environment(directory, rank, LAYOUT)
        if rules:
            place["CORRO_ALGORITHMS"] = rules
        command = [*hosts.inside(host), program, "private", *arguments]
        output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        ranks.append(
            subprocess.Popen(command, env={**os.environ, **place}, stdout=output, text=True)
        )
    printed = ranks[0].communicate(timeout=600)[0]
    codes = [rank.wait(timeout=60) for rank in ranks]
    shutil.rmtree(directory)
    if any(codes):
        sys.exit(f"hosts: a rank of corro ended with status {max(codes)}")
    return printed


def open_mpi(hosts: netns.Hosts, program: str, arguments: list[str]) -> str:
    """Runs the MPI driver with a daemon a host; nothing where Open MPI does not get that far."""
    directory = Path(tempfile.mkdtemp(prefix="corro-bench-"))
    agent = directory / "agent"
    cases = "".join(f"{hosts.address(h)}) ns={name};;\n" for h, name in enumerate(hosts.names))
    agent.write_text(
        f'#!/bin/sh\nhost=$1; shift\ncase "$host" in\n{cases}esac\n'
        'exec ip netns exec "$ns" unshare --uts sh -c "hostname $ns; $*"\n'
    )
    agent.chmod(0o700)
    where = ",".join(f"{hosts.address(h)}:{RANKS // HOSTS}" for h in range(HOSTS))
    network = "10.77.0.0/24"
    options = ["--allow-run-as-root", "--oversubscribe", "--host", where]
    options += ["--mca", "plm_rsh_agent", str(agent), "--mca", "btl", "tcp,vader,self"]
    options += ["--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include", network]
    start = f'hostname {hosts.names[0]}; exec "$@"'
    command = ["unshare", "--uts", "sh", "-c", start, "sh", "mpirun", *options, program, *arguments]
    try:
        done = subprocess.run(
            [*hosts.inside(0), *command], capture_output=True, text=True, timeout=300, check=False
        )
    except subprocess.TimeoutExpired:
        return ""
    finally:
        shutil.rmtree(directory)
    return done.stdout if done.returncode == 0 else ""


def end_without_namespaces() -> None:
    if refusal := netns.refusal():
        sys.exit(f"hosts: {refusal}")


def measure_hosts(effort: Effort) -> list[Row]:
    end_without_namespaces()
    hosts = netns.Hosts(HOSTS)
    arguments = ["1" if effort.quick else "3", *map(str, SIZES)]
    own, mpi = str(PROGRAMS / "allreduce_corro"), str(PROGRAMS / "allreduce_mpi")
    peers = {
        "corro": lambda: corro(hosts, own, "", arguments),
        "corro flat": lambda: corro(hosts, own, "allreduce=ring", arguments),
        "openmpi": lambda: open_mpi(hosts, mpi, arguments),
    }
    rates: list[float] = []
    taken: dict[tuple[str, int], list[float]] = {}
    try:
        hosts.limit(RATE)
        for _ in range(effort.rounds):
            rates.append(payload_rate(hosts))
            for peer, run in peers.items():
                for line in lines_of(run()):
                    taken.setdefault((peer, int(line["bytes"])), []).append(line["median_us"])
    finally:
        hosts.end()
    medians = {key: statistics.median(times) for key, times in taken.items()}
    return rows_of(medians, statistics.median(rates))


def rows_of(medians: dict[tuple[str, int], float], rate: float) -> list[Row]:
    """`rate`: payload bytes a microsecond. A row's ratio is, for corro, the share of the link's
    payload rate that it reaches; for a peer, corro's median by the peer's; for corro flat, that by
    the ratio of the bytes as well."""
    rate_columns = {"bytes": int(rate * 1e6), "hosts": HOSTS, "ranks": 2, "peer": "tcp"}
    rows = [timed("link payload rate", rate_columns, 1e6)]
    for (peer, size), median in medians.items():
        columns = {"bytes": size, "hosts": HOSTS, "ranks": RANKS, "peer": peer}
        mine = medians["corro", size]
        if peer == "corro":
            share = TWO_LEVEL * size / rate / median
            rows.append(Row("hosts", columns, median, share, LINK_BAR, share >= LINK_BAR))
        elif peer == "corro flat":
            against = mine / (median * TWO_LEVEL / FLAT)
            rows.append(compared("hosts", columns, median, against, FLAT_BAR))
        else:
            rows.append(compared("hosts", columns, median, mine / median))
    return rows


def vanish(scenario: str) -> float:
    """From the cut of a host's cable to the slowest survivor's error, in microseconds."""
    with tempfile.TemporaryDirectory(prefix="corro-bench-") as directory:
        job = lost_hosts.Job(Path(directory), HOSTS, VANISHED_RANKS // HOSTS)
        try:
            return job.lose_host(scenario, 1) * 1e6
        finally:
            job.end()


def measure_vanished(effort: Effort) -> list[Row]:
    end_without_namespaces()
    rows = []
    for scenario in ("in_operations", "at_rest"):
        times = [vanish(scenario) for _ in range(effort.of(5, 1))]
        columns = {"case": scenario, "hosts": HOSTS, "ranks": VANISHED_RANKS}
        rows.append(timed("vanished_host", columns, statistics.median(times), VANISHED_BAR))
    return rows


FAMILIES = {"hosts": Family(measure_hosts), "vanished_host": Family(measure_vanished)}
