"""`corro stacks`: what all ranks of a running job do, from outside."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator

import pytest

from .conftest import DEADLINE, Job, Launcher, wait_until

# Ranks 0 and 2 wait in one place, rank 1 in another one, until somebody writes to the pipe "go".
WAITS = """import os, threading
import corro
corro.init()

def wait():
    open("go").close()

def elsewhere():
    wait()

threading.Thread(target=wait, daemon=True).start()
open(f"pid-{os.getpid()}", "w")
if corro.rank() == 1:
    elsewhere()
else:
    wait()
corro.barrier()
print("done")
"""


def stacks(
    launcher: Launcher, *arguments: object, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [launcher.program, "stacks", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        env=os.environ | ({"PATH": path} if path else {}),
    )


@pytest.fixture
def waiting(launcher: Launcher) -> Iterator[Job]:
    os.mkfifo(launcher.directory / "go")
    job = launcher.start("-np", 3, launcher.script(WAITS))
    wait_until(lambda: len(list(launcher.directory.glob("pid-*"))) == 3, "three ranks wait")
    yield job
    with (launcher.directory / "go").open("w"):
        assert job.wait() == 0, job.err
    assert job.out.count(b"done") == 1  # of three ranks alike


def test_ranks_that_do_the_same_are_one(waiting: Job, launcher: Launcher) -> None:
    script = launcher.directory / "script.py"
    seen = ""

    def settled() -> bool:  # Threads may be on their way to where they wait.
        nonlocal seen
        seen = stacks(launcher, waiting.process.pid).stdout
        return seen.startswith("ranks 0,2\n") and seen.count("threading.py") == 6

    wait_until(settled, "ranks 0 and 2 do the same")
    both, one = seen.split("rank 1\n")
    main = f"  main thread\n    {script}:6 in wait\n    {script}:LINE in <module>\n  thread\n"
    assert both.startswith("ranks 0,2\n" + main.replace("LINE", "16"))
    elsewhere = f"    {script}:9 in elsewhere\n    {script}:14 in <module>\n"
    assert elsewhere in one
    for block in both, one:
        assert f"  thread\n    {script}:6 in wait\n" in block
    assert waiting.process.poll() is None, "the job goes on"


def test_a_stopped_rank_is_named(waiting: Job, launcher: Launcher) -> None:
    if shutil.which("py-spy"):
        pytest.skip("py-spy, which is installed, reads stopped processes too")
    pid = int(next(launcher.directory.glob("pid-*")).name.split("-")[1])
    os.kill(pid, signal.SIGSTOP)
    seen = stacks(launcher, waiting.process.pid)
    os.kill(pid, signal.SIGCONT)
    assert "stopped by a signal" in seen.stdout, seen.stderr
    assert seen.stdout.count("main thread") in {1, 2}


def test_a_program_without_python_is_named(launcher: Launcher) -> None:
    script = launcher.script("touch started; while [ ! -e go ]; do sleep 0.05; done", "run.sh")
    job = launcher.start("-np", 2, "sh", script)
    wait_until((launcher.directory / "started").exists, "it runs")
    seen = stacks(launcher, job.process.pid)
    (launcher.directory / "go").touch()
    assert job.wait() == 0
    lines = seen.stdout.splitlines()
    assert all("not (yet) a Python process with corro (state " in line for line in lines), lines


def test_several_jobs_have_to_be_told_apart(launcher: Launcher) -> None:
    script = launcher.script("while [ ! -e go ]; do sleep 0.05; done", "run.sh")
    jobs = [launcher.start("-np", 1, "sh", script) for _ in range(2)]

    def listed() -> str:
        return stacks(launcher).stderr

    wait_until(lambda: all(f"corro stacks {job.process.pid} " in listed() for job in jobs), "both")
    assert "several jobs of yours run here; say which one:" in listed()
    assert f"run -np 1 sh {script}" in listed() or "--log-dir" in listed()
    wrong = stacks(launcher, "nonsense")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("corro stacks: no job nonsense here; there is:\n")
    (launcher.directory / "go").touch()
    assert [job.wait() for job in jobs] == [0, 0]
