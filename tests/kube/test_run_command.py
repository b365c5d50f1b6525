"""`corro run --on kubernetes` and its kin on the control plane: pods are played and print nothing.

What pods print, and the folder of --sync: node/test_node_run.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import service_account_kubeconfig, wait_until
from jobs import PATIENCE, Job, Space
from operator_process import PROGRAM

Process = subprocess.Popen[str]
Start = Callable[..., Process]


def line_of(space: Space, kubeconfig: Path, words: tuple[str, ...]) -> list[str]:
    return [
        PROGRAM,
        words[0],
        "--kubeconfig",
        str(kubeconfig),
        "--namespace",
        space.name,
        *words[1:],
    ]


def typed(space: Space, *words: str, kubeconfig: Path | None = None) -> tuple[int, str, str]:
    line = line_of(space, kubeconfig or space.kubeconfig, words)
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def start(space: Space) -> Iterator[Start]:
    processes: list[Process] = []

    def begin(*words: str) -> Process:
        line = line_of(space, space.kubeconfig, ("run", "--on", "kubernetes", *words))
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(line, stdout=pipe, stderr=pipe, text=True))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def job_of(space: Space, name: str) -> Job:
    wait_until(lambda: name in space.items("CorroJob"), f"job {name}", PATIENCE)
    return Job(space, "CorroJob", name)


def test_it_ends_as_its_ranks_do(space: Space, start: Start) -> None:
    for name, code in (("fine", 0), ("wrong", 3)):
        process = start("--name", name, "-np", "2", "train.py")
        job = job_of(space, name)
        job.wait_for_running(job.workers(0, 0))
        for pod in job.workers(0, 0):
            space.command(pod, f"exit={code}")
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, err
        assert f"job {name} in namespace {space.name}" in err
        assert ("exit code 3" in err) == (code == 3)


def test_its_time_may_be_over(start: Start) -> None:
    process = start("--name", "late", "--timeout", "1s", "-np", "1", "train.py")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 124, err
    assert "job late: " in err


def test_an_interrupt_deletes_the_job(space: Space, start: Start) -> None:
    process = start("--name", "a", "-np", "4", "--slots", "2", "train.py")
    job = job_of(space, "a")
    job.wait_for_running(job.workers(0, 0))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGINT, err
    job.wait_for_nothing()


def test_who_is_killed_leaves_the_job(space: Space, start: Start) -> None:
    process = start("--name", "a", "-np", "2", "train.py")
    job = job_of(space, "a")
    process.kill()
    job.wait_for_running(job.workers(0, 0))


def test_it_says_what_it_waits_for(space: Space, start: Start) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    space.api.post(f"/api/v1/namespaces/{space.name}/resourcequotas", quota)
    process = start("--name", "a", "-np", "2", "train.py")
    assert process.stderr is not None
    said = next(line for line in process.stderr if "quota" in line)
    assert "exceeded quota: none" in said
    assert process.poll() is None


def test_a_job_whose_pods_are_wrong_is_not_waited_for(space: Space, start: Start) -> None:
    volumes = ("--volume", "one:/data", "--volume", "two:/data")
    process = start("--name", "a", *volumes, "-np", "1", "train.py")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, err
    assert 'volumeMounts[1].mountPath: Invalid value: "/data": must be unique' in err
    wait_until(lambda: not space.items("CorroJob"), "the job gone", PATIENCE)


def test_it_says_that_no_operator_has_seen_the_job(bare_space: Space) -> None:
    words = ("run", "--on", "kubernetes", "--name", "a", "-np", "1", "train.py")
    line = line_of(bare_space, bare_space.kubeconfig, words)
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = [next(process.stderr), next(process.stderr)]
        process.kill()
    assert "job a in namespace" in said[0]
    assert said[1].startswith("corro: no operator has seen the job yet")


@pytest.mark.parametrize("columns", [60, 300])
def test_a_terminal_shows_the_whole_reason(space: Space, columns: int) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    space.api.post(f"/api/v1/namespaces/{space.name}/resourcequotas", quota)
    words = ("run", "--on", "kubernetes", "--name", "a", "-np", "1", "train.py")
    terminal, other_end = pty.openpty()
    fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    line = line_of(space, space.kubeconfig, words)
    with subprocess.Popen(line, stderr=other_end) as process:
        os.close(other_end)
        os.set_blocking(terminal, False)
        shown: list[str] = []

        def shows_its_end() -> bool:
            with contextlib.suppress(BlockingIOError):
                shown.append(os.read(terminal, 4096).decode())
            return "tried again at" in "".join(shown)

        try:
            wait_until(shows_its_end, "the end of the reason", PATIENCE)
        finally:
            process.kill()
    os.close(terminal)
    assert "exceeded quota: none" in "".join(shown)


def test_jobs_are_listed_scaled_and_stopped(space: Space, start: Start) -> None:
    assert typed(space, "jobs") == (
        0,
        "",
        f"corro jobs: there are none in namespace {space.name}\n",
    )
    start("--name", "a", "-np", "2", "--min-np", "1", "--max-np", "3", "train.py")
    job = job_of(space, "a")
    job.wait_for_running(job.workers(0, 0))
    job.wait_for_state("Running")
    code, out, _ = typed(space, "jobs")
    assert (code, out.split()[7:11]) == (0, ["AGE", "a", "Running", "2/2"][0:4])
    assert typed(space, "scale", "a", "3") == (0, "job a is to have 3 pods\n", "")
    job.wait_for_running(job.workers(0, 0, 0))
    code, _, err = typed(space, "scale", "a", "4")
    assert code == 2
    assert "max" in err
    assert typed(space, "stop", "a")[0] == 0
    job.wait_for_nothing()
    for verb in ("stop", "logs"):
        missing = f"there is no job a in namespace {space.name}; corro jobs shows what there is"
        assert typed(space, verb, "a") == (2, "", f"corro {verb}: {missing}\n")


def test_a_right_that_is_missing_is_named(space: Space, tmp_path: Path) -> None:
    account = {"metadata": {"name": "guest"}}
    space.api.post(f"/api/v1/namespaces/{space.name}/serviceaccounts", account)
    guest = tmp_path / "guest.kubeconfig"
    service_account_kubeconfig(space.plane, guest, "guest", space.name)
    line = ("run", "--on", "kubernetes", "--name", "a", "-np", "1", "train.py")
    code, _, err = typed(space, *line, kubeconfig=guest)
    assert code == 2
    assert err.count("\n") == 1
    assert 'cannot create resource "corrojobs"' in err


def test_a_server_that_is_not_there_is_named(space: Space, tmp_path: Path) -> None:
    nobody = tmp_path / "nobody.kubeconfig"
    server = (space.plane.folder / "server").read_text().strip()
    nobody.write_text(space.kubeconfig.read_text().replace(server, "https://127.0.0.1:1"))
    code, _, err = typed(space, "jobs", kubeconfig=nobody)
    assert code == 2
    assert "127.0.0.1:1" in err
    assert err.count("\n") == 1
