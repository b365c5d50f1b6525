"""Rows of the launcher: how fast a job starts and how fast it ends. And what `import torch` costs
more with corro installed."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Sequence

from jobs import CORRO, PYTHON, corro_run, repeated


def duration(command: Sequence[str]) -> float:
    """Runs a command to its end and returns how long that took, in microseconds."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return (time.perf_counter() - start) * 1e6


def launch() -> float:
    """What the launcher adds to two processes that do nothing."""
    return duration(corro_run(2, "/bin/true")) - duration(["/bin/true"])


def help_text() -> float:
    """From the start of `corro --help` to its end."""
    return duration([str(CORRO), "--help"])


def first_line() -> float:
    """From the start of the launcher to the first line of a worker on the screen."""
    start = time.perf_counter()
    with subprocess.Popen(corro_run(2, "/bin/echo", "here"), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            sys.exit("first_line: no line")
        return (time.perf_counter() - start) * 1e6


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


def stop() -> float:
    """From a rank's failure to the launcher's end, the other ranks ignoring TERM."""
    command = corro_run(4, "--show", "all", str(PYTHON), "-S", "-c", STOP)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    end = time.monotonic_ns()
    failed = re.search(r"failed at (\d+)", done.stdout)
    if failed is None or done.returncode != 1:
        sys.exit(f"stop: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return (end - int(failed[1])) / 1e3


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


def launcher_kill() -> float:
    """From kill -9 of the launcher to the end of the last process below it."""
    command = corro_run(2, "--show", "all", str(PYTHON), "-S", "-c", FAMILY)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        lines = [launcher.stdout.readline() for _ in range(2)]
        pids = {int(pid) for line in lines for pid in line.split("pids")[1].split()}
        processes = [os.pidfd_open(pid) for pid in pids]
        start = time.perf_counter()
        launcher.kill()
        wait_for_end(processes)
        return (time.perf_counter() - start) * 1e6


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


def import_torch() -> float:
    """What the installed package adds to `import torch`."""
    environment = dict(os.environ, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    done = subprocess.run(
        [str(PYTHON), "-c", IMPORT], env=environment, capture_output=True, check=True
    )
    return float(done.stdout)


FAMILIES = {
    "launch": repeated("launch", launch, 50e3, (30, 10)),
    "help": repeated("help", help_text, 10e3, (30, 10), ranks=1),
    "first_line": repeated("first_line", first_line, 50e3, (30, 10)),
    "stop": repeated("stop", stop, 1e6, (10, 3), ranks=4),
    "launcher_kill": repeated("launcher_kill", launcher_kill, 1e6, (10, 3)),
    "import_torch": repeated("import_torch", import_torch, 5e3, (10, 3), ranks=1),
}
