"""What a worker finds: variables, interpreter, processors, a free port, no secret."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

from .conftest import Launcher, wait_until

REPORT = (
    "import json, os, sys\n"
    "rank = os.environ['CORRO_RANK']\n"
    "report = dict(env=dict(os.environ), argv=sys.argv, exe=sys.executable,\n"
    "              cpus=sorted(os.sched_getaffinity(0)))\n"
    "open(f'report-{rank}.json', 'w').write(json.dumps(report))\n"
)


def reports(launcher: Launcher, ranks: int) -> list[dict]:
    return [
        json.loads((launcher.directory / f"report-{rank}.json").read_text())
        for rank in range(ranks)
    ]


def test_ranks_find_themselves_by_our_names_and_by_torchruns(launcher: Launcher) -> None:
    job = launcher.run("-np", 3, launcher.script(REPORT), "--lr", "0.1")
    assert job.process.returncode == 0
    for rank, report in enumerate(reports(launcher, 3)):
        env = report["env"]
        assert report["argv"][1:] == ["--lr", "0.1"]
        for name in ("CORRO_RANK", "CORRO_LOCAL_RANK", "RANK", "LOCAL_RANK", "ROLE_RANK"):
            assert env[name] == str(rank)
        for name in ("CORRO_SIZE", "CORRO_LOCAL_SIZE", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            assert env[name] == "3"
        for name in ("GROUP_RANK", "CORRO_NODE_RANK", "TORCHELASTIC_RESTART_COUNT"):
            assert env[name] == "0"
        assert (env["GROUP_WORLD_SIZE"], env["CORRO_NODES"], env["CORRO_RUN"]) == ("1", "1", "1")
        assert env["CORRO_JOB_ID"] == env["TORCHELASTIC_RUN_ID"] != ""
        assert env["CORRO_AGENT"]
        assert int(env["OMP_NUM_THREADS"]) >= 1
        assert not [name for name in env if "SECRET" in name]


def test_the_port_is_free_for_rank_0(launcher: Launcher) -> None:
    launcher.run("-np", 1, launcher.script(REPORT))
    env = reports(launcher, 1)[0]["env"]
    with socket.create_server((env["MASTER_ADDR"], int(env["MASTER_PORT"]))):
        pass


def test_the_interpreter_is_the_one_of_the_current_environment(launcher: Launcher) -> None:
    venv = launcher.directory / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").symlink_to(sys.executable)
    (venv.parent / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    job = launcher.run("-np", 1, launcher.script(REPORT), env={"VIRTUAL_ENV": str(venv.parent)})
    assert job.process.returncode == 0, job.err
    assert reports(launcher, 1)[0]["exe"] == str(venv / "python")


def test_a_module_is_started_with_m(launcher: Launcher) -> None:
    launcher.script("print('module', __name__)", "mine.py")
    assert launcher.run("-np", 1, "-m", "mine").out == b"module __main__\n"


def test_env_sets_and_insists(launcher: Launcher) -> None:
    script = launcher.script("import os; print(os.environ['A'], os.environ['MASTER_PORT'])")
    job = launcher.run(
        "-np", 1, "--env", "A=x y", "--env", "MASTER_PORT=4711", "--env", "HOME", script
    )
    assert job.out == b"x y 4711\n"


def test_spellings_of_the_number_of_ranks(launcher: Launcher) -> None:
    script = launcher.script("import os; print(os.environ['CORRO_SIZE'])")
    for spelling in (
        ["-np", "2"],
        ["-n", "2"],
        ["-n2"],
        ["--np=2"],
        ["--nproc-per-node", "2"],
        ["--nproc_per_node=2"],
    ):
        assert launcher.run(*spelling, script).out == b"2\n", spelling


def test_without_a_number_it_chooses_and_says_so_unless_quiet(launcher: Launcher) -> None:
    script = launcher.script("import os; print(os.environ['CORRO_SIZE'])")
    job = launcher.run(script)
    assert int(job.out) >= 1
    assert f"corro: {int(job.out)} rank".encode() in job.err
    assert launcher.run("--quiet", script).err == b""


def test_what_follows_the_program_belongs_to_it(launcher: Launcher) -> None:
    script = launcher.script("import sys; print(sys.argv[1:])")
    job = launcher.run("-np", 1, "--", script, "-np", "3", "--show", "--", "x")
    assert job.out == b"['-np', '3', '--show', '--', 'x']\n"


def test_bind_core_gives_each_rank_its_share(launcher: Launcher) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    job = launcher.run("-np", 1, "--bind", "core", launcher.script(REPORT))
    assert job.process.returncode == 0
    assert reports(launcher, 1)[0]["cpus"] == cpus
    job = launcher.run("-np", len(cpus) + 1, "--bind", "core", launcher.script(REPORT))
    assert job.process.returncode == 2
    assert b"--bind none" in job.err


def test_verbose_says_what_is_done(launcher: Launcher) -> None:
    job = launcher.run("-np", 2, "--verbose", "true")
    assert b"OMP_NUM_THREADS=" in job.err
    assert b"rank 1 has pid" in job.err
    assert b"status 0" in job.err


def test_the_secret_is_nowhere_to_be_seen(launcher: Launcher) -> None:
    """No 64 hexadecimal digits in any command line, environment, output or file of the job."""
    script = launcher.script(
        "import os, time\nopen('pid-%d' % os.getpid(), 'w')\nwhile True: time.sleep(0.1)"
    )
    job = launcher.start("-np", 1, "--verbose", script)
    wait_until(lambda: bool(list(launcher.directory.glob("pid-*"))), "the worker runs")
    worker = int(next(launcher.directory.glob("pid-*")).name[4:])
    seen = (
        Path(f"/proc/{worker}/environ").read_bytes() + Path(f"/proc/{worker}/cmdline").read_bytes()
    )
    seen += Path(f"/proc/{job.process.pid}/cmdline").read_bytes()
    job.send(15)
    job.wait()
    seen += job.out + job.err + job.log(0)
    import re

    assert not re.search(rb"[0-9a-fA-F]{64}", seen)
