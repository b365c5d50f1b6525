"""Signals, and that no process is ever left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .conftest import Launcher, is_alive, pids_in, wait_until

pytestmark = pytest.mark.faults

# Each worker has two children: one as a data loader would be, one that has left its session.
FAMILY = """
import os, signal, subprocess, sys, time
def note(kind):
    open(f"pid-{os.getpid()}", "w").write(kind)
def child():
    signal.signal(signal.SIGTERM, lambda *_: open(f"term-{os.getpid()}", "w"))
    note("child")
    while True: time.sleep(0.1)
signal.signal(signal.SIGTERM, lambda *_: (open(f"term-{os.getpid()}", "w"), sys.exit(0)))
for detached in (False, True):
    if os.fork() == 0:
        if detached:
            os.setsid()
            if os.fork() != 0: os._exit(0)
        child()
note("worker")
while True: time.sleep(0.1)
"""


def processes(directory: Path, ranks: int) -> list[int]:
    return pids_in(directory, 3 * ranks)


def gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), "every process has ended")


def agent_of(launcher: int) -> int:
    children = Path(f"/proc/{launcher}/task/{launcher}/children")
    if children.exists():
        return int(children.read_text().split()[0])
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == launcher:
                return int(stat.parent.name)
        except OSError:
            continue
    raise AssertionError("the launcher has no child")


def test_kill_9_of_the_launcher_leaves_nothing(launcher: Launcher) -> None:
    job = launcher.start("-np", 2, launcher.script(FAMILY))
    pids = processes(launcher.directory, 2)
    agent = agent_of(job.process.pid)
    job.process.kill()
    gone([*pids, agent])


def test_kill_9_of_the_agent_leaves_nothing_and_is_said(launcher: Launcher) -> None:
    job = launcher.start("-np", 2, launcher.script(FAMILY))
    pids = processes(launcher.directory, 2)
    os.kill(agent_of(job.process.pid), signal.SIGKILL)
    assert job.wait() == 128 + signal.SIGKILL
    assert b"was killed by SIGKILL; every rank was stopped" in job.err
    gone(pids)


def test_term_reaches_the_worker_and_not_its_children(launcher: Launcher) -> None:
    job = launcher.start("-np", 2, launcher.script(FAMILY))
    pids = processes(launcher.directory, 2)
    workers = {p for p in pids if (launcher.directory / f"pid-{p}").read_text() == "worker"}
    job.send(signal.SIGTERM)
    assert job.wait() == 0, "each worker ended well"
    termed = {int(path.name[5:]) for path in launcher.directory.glob("term-*")}
    assert termed == workers
    gone(pids)


def test_after_a_normal_end_nothing_is_left(launcher: Launcher) -> None:
    script = launcher.script(
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "open(f'pid-{child.pid}', 'w')\n"
    )
    job = launcher.start("-np", 2, script)
    assert job.wait() == 0
    assert not any(map(is_alive, pids_in(launcher.directory, 2)))


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2", "SIGHUP", "SIGALRM", "SIGQUIT", "SIGRTMIN"])
def test_any_signal_is_forwarded(launcher: Launcher, name: str) -> None:
    number = getattr(signal, name)
    script = launcher.script(
        "import os, signal, sys, time\n"
        f"def seen(*_): open(f'seen-{{os.environ[\"RANK\"]}}', 'w'); os._exit(0)\n"
        f"signal.signal({int(number)}, seen)\n"
        "open(f'pid-{os.getpid()}', 'w')\n"
        "while True: time.sleep(0.1)"
    )
    job = launcher.start("-np", 2, script)
    pids_in(launcher.directory, 2)
    job.send(number)
    assert job.wait() == 0
    assert len(list(launcher.directory.glob("seen-*"))) == 2


def test_a_job_in_the_background_of_a_script_can_be_interrupted(launcher: Launcher) -> None:
    as_the_shell_does = ["sh", "-c", "trap '' INT QUIT HUP; exec \"$@\"", "sh"]
    job = launcher.start("-np", 2, launcher.script(WAIT), inside=as_the_shell_does)
    pids = pids_in(launcher.directory, 2)
    job.send(signal.SIGHUP)  # As nohup, it protects from this one.
    job.send(signal.SIGINT)
    assert job.wait() == 128 + signal.SIGINT
    assert b"corro: stopped by SIGINT" in job.err
    gone(pids)


WAIT = "import os, time\nopen(f'pid-{os.getpid()}', 'w')\nwhile True: time.sleep(0.1)\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_that_was_asked_to_stop_is_no_failure(launcher: Launcher, number: int) -> None:
    job = launcher.start("-np", 2, launcher.script(WAIT))
    pids = pids_in(launcher.directory, 2)
    job.send(number)
    assert job.wait() == 128 + number
    assert (
        job.err.decode()
        .splitlines()[-1]
        .startswith(f"corro: stopped by {signal.Signals(number).name}")
    )
    assert not (job.logs / "failure.json").exists()
    gone(pids)


STUBBORN = """
import os, signal, time
def count(*_): open(f'int-{os.environ["RANK"]}', 'a').write('x')
signal.signal(signal.SIGINT, count)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(f'pid-{os.getpid()}', 'w')
while True: time.sleep(0.1)
"""


def interrupts_seen(launcher: Launcher) -> int:
    return sum(len(path.read_text()) for path in launcher.directory.glob("int-*"))


def test_the_second_ctrl_c_stops_even_who_ignores_it(launcher: Launcher) -> None:
    screen = launcher.directory / "screen"
    with screen.open("wb") as file:
        job = launcher.start("-np", 2, launcher.script(STUBBORN), stderr=file)
    pids = pids_in(launcher.directory, 2)
    job.send(signal.SIGINT)
    wait_until(lambda: interrupts_seen(launcher) == 2, "both have seen the first")
    reminder = "corro: waiting for the ranks to end; Ctrl-C once more stops them\n"
    wait_until(lambda: reminder in screen.read_text(), "the launcher says what it waits for")
    assert job.process.poll() is None
    job.send(signal.SIGINT)
    assert job.wait() == 130
    gone(pids)


GIVES_UP = """
import os, signal, sys, time
signal.signal(signal.SIGINT, lambda *_: open(f'int-{os.environ["RANK"]}', 'a').write('x'))
open(f'pid-{os.getpid()}', 'w')
while os.environ["RANK"] != "0" or not os.path.exists("int-0"): time.sleep(0.01)
sys.exit('''Traceback (most recent call last):
  File "script.py", line 1, in <module>
corro.TimeoutError: allreduce #1 on rank 0 (phase exchange): waited for rank 1 for 5 s''')
"""


def test_a_rank_that_gives_up_after_ctrl_c_ends_the_job(launcher: Launcher) -> None:
    """The rank that it has waited for does not listen to Ctrl-C."""
    job = launcher.start("-np", 2, launcher.script(GIVES_UP))
    pids = pids_in(launcher.directory, 2)
    job.send(signal.SIGINT)
    assert job.wait() != 0
    assert "waited for rank 1" in job.err.decode()
    gone(pids)


def test_a_worker_that_fails_to_save_after_term_is_a_failure(launcher: Launcher) -> None:
    script = launcher.script(
        "import os, signal, sys, time\n"
        "def save(*_):\n"
        "    if os.environ['RANK'] == '1': raise OSError('disk full')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n" + WAIT
    )
    job = launcher.start("-np", 2, script)
    pids_in(launcher.directory, 2)
    job.send(signal.SIGTERM)
    assert job.wait() == 1
    assert job.failure()["cause"] == "OSError: disk full"


def test_stop_and_continue_reach_the_workers(launcher: Launcher) -> None:
    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    job = launcher.start("-np", 1, launcher.script(WAIT))
    (worker,) = pids_in(launcher.directory, 1)
    job.send(signal.SIGTSTP)
    wait_until(lambda: state(worker) == "T", "the worker is stopped")
    wait_until(lambda: state(job.process.pid) == "T", "the launcher is stopped")
    job.send(signal.SIGCONT)
    wait_until(lambda: state(worker) in "SR", "the worker goes on")
    job.send(signal.SIGTERM)
    assert job.wait() == 143
