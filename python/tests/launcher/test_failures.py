"""A rank fails: the others stop, one block says why, the status is the culprit's."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from cgroup import memory_cgroup

from .conftest import Launcher, is_alive, pids_in, wait_until

pytestmark = pytest.mark.faults

START = (
    "import os, sys, time, signal\n"
    "rank = int(os.environ['CORRO_RANK'])\n"
    "open('pid-%d' % os.getpid(), 'w')\n"
    "def others_started():\n"
    "    while sum(f[:4] == 'pid-' for f in os.listdir()) < int(os.environ['CORRO_SIZE']):\n"
    "        time.sleep(0.01)\n"
    "others_started()\n"
)
HANG = "\nwhile True: time.sleep(0.1)\n"


def test_the_block_names_the_rank_the_error_the_line_and_the_log(launcher: Launcher) -> None:
    script = launcher.script(
        START
        + "def main():\n"
        + "    if rank == 2: raise ValueError('root cause here')\n"
        + "main()"
        + HANG
    )
    job = launcher.run("-np", 4, script)
    assert job.process.returncode == 1
    block = job.block()
    assert block[0].startswith("corro: rank 2 failed on ")
    text = "\n".join(block)
    assert "ValueError: root cause here" in text
    assert f"{script}:9 in main" in text
    assert "3 ranks were stopped because of it (ranks 0-1,3)" in text
    assert str(job.logs / "rank-2.log") in text
    assert b"Traceback" in job.log(2)
    failure = job.failure()
    assert failure["rank"] == 2
    assert failure["cause"] == "ValueError: root cause here"
    assert failure["exit"] == 1
    assert failure["victims"] == [0, 1, 3]
    assert {"host", "pid", "step", "op", "phase"} <= failure.keys()
    assert not any(is_alive(pid) for pid in pids_in(launcher.directory, 4))


def test_a_message_of_several_lines_stays_whole(launcher: Launcher) -> None:
    script = launcher.script(
        START
        + "if rank: raise ValueError('shape is wrong:\\n  expected (3, 4)\\nsee the manual')"
        + HANG
    )
    job = launcher.run("-np", 3, script)
    cause = "ValueError: shape is wrong: expected (3, 4) see the manual"
    assert job.failure()["cause"] == cause
    assert cause in "\n".join(job.block())
    head = job.err.index(b"ValueError: shape is wrong:\n")
    shown = [line.split(b"] ", 1)[1] for line in job.err[head:].splitlines()[1:3]]
    assert shown[0] == b"  expected (3, 4)"
    assert shown[1].startswith(b"see the manual")


ENGINE = """
import os, signal, numpy
import corro
import corro.numpy as cn

corro.init()
for step in range(5):
    corro.set_step(step)
    if step == 3 and corro.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    cn.allreduce(numpy.ones(1000, numpy.float32))
"""


def test_a_rank_killed_in_its_third_step_is_named_with_what_it_did(launcher: Launcher) -> None:
    job = launcher.run("-np", 3, launcher.script(ENGINE))
    assert job.process.returncode == 128 + signal.SIGKILL
    failure = job.failure()
    assert (failure["rank"], failure["step"], failure["exit"]) == (1, 3, 137)
    assert failure["op"] == "allreduce"
    block = "\n".join(job.block())
    assert "corro: rank 1 failed on" in block
    assert "step 3)" in block
    assert "allreduce" in block
    assert "SIGKILL" in block
    assert "2 ranks were stopped because of it (ranks 0,2)" in block
    assert b"corro.RankLostError" in job.log(0) + job.log(2)


HANGING = """
import signal
import corro
import corro.numpy as cn

corro.init()
cn.allreduce(1)
print("here", flush=True)
if corro.rank() == 1:
    signal.pause()  # Until the test ends the job.
cn.allreduce(2.5)
"""


def doctor(launcher: Launcher) -> list[str]:
    return [launcher.program, "doctor", "--json"]


def test_the_doctor_sees_whom_a_hanging_job_waits_for(launcher: Launcher) -> None:
    job = launcher.start("-np", 2, launcher.script(HANGING))
    seen: dict[str, object] = {}

    def waits() -> bool:
        # Its status says whether it has found anybody.
        done = subprocess.run(doctor(launcher), capture_output=True, check=False)
        found = json.loads(done.stdout or "[]")
        ranks = [patient for patient in found if patient["rank"] == 0 and patient["size"] == 2]
        seen.update(ranks[-1] if ranks else {})
        return seen.get("waiting_for") == 1 and seen.get("dtype") == "f64"

    wait_until(waits, "rank 0 waits for rank 1")
    assert (seen["op"], seen["op_number"], seen["count"]) == ("allreduce", 2, 1)
    patients = json.loads(subprocess.run(doctor(launcher), capture_output=True, check=True).stdout)
    assert not [p for p in patients if not p["job"]], "the launcher is no rank"
    job.process.terminate()
    job.process.communicate()


@pytest.mark.parametrize(
    ("death", "status"),
    [
        ("sys.exit(7)", 7),
        ("os._exit(200)", 200),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139),
        ("os.abort()", 134),
    ],
)
def test_the_status_is_the_culprits(launcher: Launcher, death: str, status: int) -> None:
    job = launcher.run("-np", 2, launcher.script(START + f"if rank == 1: {death}" + HANG))
    assert job.process.returncode == status
    assert job.failure()["exit"] == status
    assert job.failure()["rank"] == 1
    assert "rank 1 failed" in job.block()[0]


def test_a_signal_is_named(launcher: Launcher) -> None:
    job = launcher.run(
        "-np", 2, launcher.script(START + "if rank == 1: os.kill(os.getpid(), 11)" + HANG)
    )
    assert "SIGSEGV (segmentation fault)" in job.failure()["cause"]


def test_ranks_that_ignore_term_are_killed(launcher: Launcher) -> None:
    script = launcher.script(
        START + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "time.sleep(0.2)\nif rank == 0: sys.exit(5)" + HANG
    )
    job = launcher.run("-np", 3, script)
    assert job.process.returncode == 5
    assert not any(is_alive(pid) for pid in pids_in(launcher.directory, 3))


def test_a_stopped_rank_is_ended_too(launcher: Launcher) -> None:
    script = launcher.script(
        START + "if rank == 0: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "time.sleep(0.2)\nif rank == 1: sys.exit(4)" + HANG
    )
    assert launcher.run("-np", 2, script).process.returncode == 4


def test_ranks_that_report_the_loss_are_not_blamed_for_it(launcher: Launcher) -> None:
    """The witnesses end before the culprit: its connections break before its process ends."""
    script = launcher.script(
        START + "class RankLostError(Exception): pass\n"
        "if rank != 2:\n"
        "    raise RankLostError('allreduce: rank 2 was lost')\n"
        "time.sleep(0.1)\n"
        'sys.stderr.write(\'Traceback (most recent call last):\\n  File "x.py", line 3, in f\\n'
        "KeyError: 1\\n')\n"
        "os._exit(9)"
    )
    job = launcher.run("-np", 4, script)
    assert job.failure()["rank"] == 2
    assert job.failure()["cause"] == "KeyError: 1"
    assert b"RankLostError" not in job.err, "victims get one line"


def test_ranks_that_fail_alike_are_summed_up(launcher: Launcher) -> None:
    job = launcher.run("-np", 2, launcher.script(START + "import no_such_module_here"))
    assert job.process.returncode == 1
    failure = job.failure()
    assert "no_such_module_here" in failure["cause"]
    assert len(failure["alike"]) + len(failure["victims"]) == 1
    assert job.err.count(b"ModuleNotFoundError: No module") <= 3


def test_a_rank_may_end_well_before_the_others(launcher: Launcher) -> None:
    script = launcher.script(START + "if rank == 0: sys.exit(0)\ntime.sleep(0.5); print('later')")
    job = launcher.run("-np", 2, script)
    assert (job.process.returncode, job.out) == (0, b"[rank 1] later\n")


def test_timeout_stops_the_job_with_124_and_says_who_was_running(launcher: Launcher) -> None:
    script = launcher.script(START + "if rank == 1: sys.exit(0)" + HANG)
    job = launcher.run("-np", 3, "--timeout", "3", script)
    assert job.process.returncode == 124
    assert "still running: ranks 0,2" in job.block()[0]
    assert job.failure()["exit"] == 124
    assert not any(is_alive(pid) for pid in pids_in(launcher.directory, 3))


def test_options_behind_the_script_get_a_hint_when_it_fails(launcher: Launcher) -> None:
    script = launcher.script(
        "import argparse, sys\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--show')\n"
        "parser.parse_args()\n"
    )
    job = launcher.run(script, "--show", "all", "-np", "2")
    assert job.process.returncode == 2
    assert job.block()[-1] == (
        f"  hint   -np 2 went to the program; if it was for corro: corro run -np 2 {script} ..."
    )
    job = launcher.run("-np", 2, script, "--show", "all", "--lr", "1")
    assert job.failure()["hint"] is None, "the script has an option of this name"


def test_more_ranks_than_cores(launcher: Launcher) -> None:
    job = launcher.run("-np", 8, launcher.script(START + "print('here')"))
    assert (job.process.returncode, job.out) == (0, b"here\n")


def test_torchs_error_files_are_read_and_written(launcher: Launcher) -> None:
    script = launcher.script(
        START + "import json\n"
        "if rank == 1:\n"
        "    error = {'message': {'message': 'MyError: said in the file', 'extraInfo': {}}}\n"
        "    open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write(json.dumps(error))\n"
        "    os._exit(6)" + HANG
    )
    outer = launcher.directory / "outer.json"
    job = launcher.run("-np", 2, script, env={"TORCHELASTIC_ERROR_FILE": str(outer)})
    assert job.failure()["cause"] == "MyError: said in the file"
    assert json.loads(outer.read_text())["message"]["message"] == "MyError: said in the file"


def test_out_of_memory_is_named_with_its_limit(launcher: Launcher) -> None:
    script = launcher.script(
        START + "if rank == 1:\n"
        "    data = []\n"
        "    while True: data.append(bytearray(b'x' * (1 << 20)))" + HANG
    )
    with memory_cgroup(96 << 20) as inside:
        job = launcher.run("-np", 2, sys.executable, "-u", script, inside=inside)
    assert job.process.returncode == 128 + signal.SIGKILL, job.err
    assert job.failure()["rank"] == 1
    assert "out of memory" in job.failure()["cause"]
    assert "96 MiB" in job.failure()["cause"]
