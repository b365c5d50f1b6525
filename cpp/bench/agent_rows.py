"""Rows of agents without ssh, all on this machine: many of them, code that they have already, and
much output of many ranks."""

from __future__ import annotations

import filecmp
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from cluster import mounts_refusal
from jobs import CORRO, PYTHON, Effort, Family, corro_run, note
from rows import Row, compared, missing, timed

RANKS = 64
AGENTS_BAR = 3e6  # Microseconds, and so is the next one.
SYNC_BAR = 0.3e6
OUTPUT_BAR = 1.3  # Of a shell's time.
MEMORY_BAR = 64  # MiB.

# For --rsh: the host is this machine.
LOCAL_SHELL = '#!/bin/sh\nshift\nexec sh -c "$1"\n'

Columns = dict[str, object]


def columns_of(case: str, hosts: int, ranks: int, least: float | None, said: str = "") -> Columns:
    return {"case": case, "hosts": hosts, "ranks": ranks, "min_us": least, "note": said}


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


# -- agents_64 -------------------------------------------------------------------------------------


def start_agents(folder: Path) -> float:
    """From the start of the launcher until a rank of every agent has printed its line."""
    hosts = ",".join(f"node{host}" for host in range(RANKS))
    shell = script(folder / "rsh", LOCAL_SHELL)
    options = ("--rsh", shell, "-H", hosts, "--show", "all")
    command = corro_run(RANKS, *options, "/bin/echo", "here")
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        lines = {job.stdout.readline() for _ in range(RANKS)}
        took = (time.perf_counter() - start) * 1e6
    if job.returncode != 0 or lines != {f"[rank {rank}] here\n" for rank in range(RANKS)}:
        sys.exit(f"agents_64: exit status {job.returncode}, {len(lines)} lines")
    return took


def measure_agents(effort: Effort) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="corro-bench-") as folder:
        times = [start_agents(Path(folder)) for _ in range(effort.of(10, 3))]
    columns = columns_of("local shell", RANKS, RANKS, min(times))
    return [timed("agents_64", columns, statistics.median(times), AGENTS_BAR)]


# -- sync ------------------------------------------------------------------------------------------

FILES, FILE_BYTES, FILES_A_FOLDER = 1000, 8 << 10, 50
SYNC_HOSTS = ("node0", "node1")


class Tree:
    """A folder of code, and a shell to hosts that have their own folder at its place."""

    def __init__(self, folder: Path) -> None:
        self.code = folder / "code"
        self.copies = [folder / host for host in SYNC_HOSTS]
        for number in range(FILES):
            path = self.code / f"package{number // FILES_A_FOLDER}" / f"module{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(FILE_BYTES))
        for copy in self.copies:
            copy.mkdir()
        mount = f"mount --bind {folder}/$1 {self.code} && $2"
        self.shell = script(folder / "rsh", f'#!/bin/sh\nexec unshare -m sh -c "{mount}"\n')

    def run(self, *options: str) -> float:
        """Runs a job that does nothing; returns how long that took."""
        hosts = ("--rsh", self.shell, "-H", ",".join(SYNC_HOSTS))
        command = corro_run(len(SYNC_HOSTS), *hosts, *options, "/bin/true")
        start = time.perf_counter()
        subprocess.run(command, check=True, cwd=self.code, capture_output=True)
        return (time.perf_counter() - start) * 1e6

    def check(self) -> None:
        names = [str(path.relative_to(self.code)) for path in self.code.glob("*/*.py")]
        for copy in self.copies:
            if len(filecmp.cmpfiles(self.code, copy, names, shallow=False)[0]) != FILES:
                sys.exit(f"sync: {copy} is not the same")


def measure_sync(effort: Effort) -> list[Row]:
    hosts = len(SYNC_HOSTS)
    case = f"{FILES} files, unchanged"
    if refusal := mounts_refusal():
        return [missing("sync", columns_of(case, hosts, hosts, None, refusal))]
    with tempfile.TemporaryDirectory(prefix="corro-bench-") as folder:
        tree = Tree(Path(folder))
        tree.run("--sync", ".")
        tree.check()
        pairs = [(tree.run("--sync", "."), tree.run()) for _ in range(effort.of(20, 5))]
    added = [with_it - without for with_it, without in pairs]
    columns = columns_of(case, hosts, hosts, min(added))
    return [timed("sync", columns, statistics.median(added), SYNC_BAR)]


# -- output_64 -------------------------------------------------------------------------------------

LINES = 10_000
CASES = {
    "own lines": "step {step} of rank {rank}: loss 0.12345",
    "equal lines": "step {step}: loss 0.12345",
}
PRINTS = """
import os, sys
rank = os.environ["CORRO_RANK"]
for step in range(int(sys.argv[1])):
    print(sys.argv[2].format(step=step, rank=rank))
"""
BESIDE = """
for rank in $(seq 0 {last}); do CORRO_RANK=$rank "$@" > $rank & done; wait
"""


def text_of(case: str, rank: int) -> str:
    return "".join(CASES[case].format(step=step, rank=rank) + "\n" for step in range(LINES))


class Output:
    """Ranks that print, in a folder for what they print."""

    def __init__(self, case: str, folder: Path) -> None:
        self._case, self._folder = case, folder
        self._screen = folder / "screen"
        self._program = [str(PYTHON), "-c", PRINTS, str(LINES), CASES[case]]

    @property
    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONUNBUFFERED": "1"}  # As corro run sets it.

    def start(self) -> subprocess.Popen[bytes]:
        options = ["-np", str(RANKS), "--bind", "none", "--log-dir", str(self._folder / "logs")]
        with self._screen.open("wb") as screen:
            return subprocess.Popen(
                [str(CORRO), "run", *options, *self._program], env=self._environment, stdout=screen
            )

    def run(self) -> float:
        start = time.perf_counter()
        job = self.start()
        code = job.wait(timeout=600)
        took = (time.perf_counter() - start) * 1e6
        if code != 0:
            sys.exit(f"output_64: exit status {code}")
        self.check()
        return took

    def run_beside(self) -> float:
        """The same processes, started by a shell into files."""
        command = ["sh", "-c", BESIDE.format(last=RANKS - 1), "sh", *self._program]
        start = time.perf_counter()
        subprocess.run(command, cwd=self._folder, env=self._environment, check=True)
        return (time.perf_counter() - start) * 1e6

    def check(self) -> None:
        """Every line is in its log, and on the screen: those of rank 0 as they are, those of others
        behind their rank unless they are equal to one of rank 0."""
        screen: dict[str, list[str]] = {}
        for line in self._screen.read_text().splitlines(keepends=True):
            by = line[1:].split("]")[0] if line.startswith("[rank ") else "rank 0"
            screen.setdefault(by, []).append(line.removeprefix(f"[{by}] "))
        for rank in range(RANKS):
            text = text_of(self._case, rank)
            if (self._folder / "logs" / f"rank-{rank}.log").read_text() != text:
                sys.exit(f"output_64: lines of rank {rank} are missing in its log")
            shown = rank == 0 or self._case == "own lines"
            # Another rank's line may have broken one of rank 0, had it stood still for a second.
            seen = "".join(screen.get(f"rank {rank}", [])).replace("\n", "")
            if shown and seen != text.replace("\n", ""):
                sys.exit(f"output_64: lines of rank {rank} are missing on the screen")

    def memory(self) -> tuple[float, float]:
        """The most memory of the launcher and of its agent, in MiB."""
        most = {"launcher": 0.0, "agent": 0.0}
        job = self.start()
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
        while job.poll() is None:
            # The agent is the launcher's only child.
            pids = {"launcher": str(job.pid), "agent": children.read_text().strip()}
            for name, pid in pids.items():
                most[name] = max(most[name], high_water(pid))
            time.sleep(0.01)
        return most["launcher"], most["agent"]


def high_water(pid: str) -> float:
    """VmHWM in MiB; 0 of a process that has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def measure_output(effort: Effort) -> list[Row]:
    return [row for case in CASES for row in rows_of_output(case, effort)]


def rows_of_output(case: str, effort: Effort) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="corro-bench-") as folder:
        output = Output(case, Path(folder))
        own, beside = [], []
        for _ in range(effort.of(5, 1)):
            note(f"output_64: {case}")
            own.append(output.run())
            beside.append(output.run_beside())
        launcher, agent = output.memory()
    shell = statistics.median(beside)
    said = f"a shell: {shell / 1e3:.0f} ms"
    columns = columns_of(case, 1, RANKS, min(own), said)
    median = statistics.median(own)
    said = f"the agent: {agent:.1f} MiB"
    memory = columns_of(f"{case}: MiB of the launcher", 1, RANKS, None, said)
    return [
        compared("output_64", columns, median, median / shell, OUTPUT_BAR),
        Row("output_64", memory, None, launcher, MEMORY_BAR, launcher <= MEMORY_BAR),
    ]


FAMILIES = {
    "agents_64": Family(measure_agents),
    "sync": Family(measure_sync),
    "output_64": Family(measure_output),
}
