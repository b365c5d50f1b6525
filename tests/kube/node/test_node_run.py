"""`corro run --on kubernetes` and what belongs to it, on a real node, as a user has it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import wait_until
from jobs import PATIENCE, Space
from node_jobs import IMAGE, make_volume
from operator_process import PROGRAM

ENDS = 120.0  # Seconds that a job may take.

TRAIN = """
import os, sys, time
import corro, corro.numpy, numpy as np
from parts import greeting
corro.init()
total = corro.numpy.allreduce(np.ones(3), op=corro.Sum)
if corro.rank() == 0:
    print(greeting, int(total[0]), os.getcwd(), *sys.argv[1:], os.environ.get("LR"), flush=True)
"""
WAIT = """
import corro, time
corro.init()
corro.barrier()
if corro.rank() == 0:
    print("waits", flush=True)
while True:
    time.sleep(0.1)
"""
ELASTIC = """
import corro, corro.numpy, numpy as np, os, time
corro.init()
state = corro.elastic.State(step=0)

@corro.elastic.run
def train(state):
    while not os.path.exists("/out/end"):
        corro.numpy.allreduce(np.ones(3))
        state.step += 1
        corro.set_step(state.step)
        state.commit()
        if corro.rank() == 0 and state.step % 20 == 0:
            print(f"step {state.step} of {corro.size()}", flush=True)
        time.sleep(0.01)

train(state)
"""


class User:
    """Types commands in a folder of files."""

    def __init__(self, space: Space, folder: Path) -> None:
        self._space = space
        self._folder = folder
        self._variables = os.environ | {"KUBECONFIG": str(space.kubeconfig), "LR": "0.1"}

    def start(self, *words: str) -> subprocess.Popen[str]:
        line = [PROGRAM, words[0], "--namespace", self._space.name, *words[1:]]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            line, cwd=self._folder, env=self._variables, stdout=pipe, stderr=pipe, text=True
        )

    def type(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=ENDS)
        return process.returncode, out, err

    def run(self, *words: str) -> tuple[int, str, str]:
        return self.type("run", "--on", "kubernetes", "--image", IMAGE, *words)

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        process = self.start("run", "--on", "kubernetes", "--image", IMAGE, *words)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def user(space: Space, tmp_path: Path) -> User:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "parts").mkdir()
    (folder / "parts/__init__.py").write_text("greeting = 'all of'\n")
    for name, text in {"train": TRAIN, "wait": WAIT, "elastic": ELASTIC}.items():
        (folder / f"{name}.py").write_text(text)
    (folder / ".gitignore").write_text("big\n")
    (folder / "big").write_bytes(os.urandom(1 << 20))
    return User(space, folder)


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """The first line of its output with the pattern."""
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(pattern, line):
            return line
    raise AssertionError(f"it ended without {pattern}: {process.communicate()[1]}")


def test_a_folder_runs_as_at_home(user: User) -> None:
    code, out, err = user.run(
        "--sync", ".", "--env", "LR", "-np", "2", "python", "train.py", "--epochs", "3"
    )
    assert code == 0, err
    assert out == "all of 2 /workspace/project --epochs 3 0.1\n"
    assert "to send" in err
    assert "corro head" not in err


def test_a_failing_rank_ends_it_with_its_status(user: User) -> None:
    script = "import corro; corro.init(); raise SystemExit(7 if corro.rank() == 1 else 0)"
    code, _, err = user.run("-np", "2", "python", "-c", script)
    assert code == 7, err
    assert "rank 1" in err
    assert "exit" in err


def test_an_interrupt_ends_the_job_and_its_pods(user: User, space: Space) -> None:
    with user.running("--name", "waits", "--sync", ".", "-np", "2", "wait.py") as process:
        read_until(process, "waits")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=ENDS)
    assert process.returncode == 130, err
    assert "ends job waits" in err
    wait_until(lambda: not space.items("Pod"), "the end of all pods", PATIENCE)
    assert not space.items("CorroJob")


def test_an_elastic_job_is_scaled_and_looked_at(user: User, space: Space, tmp_path: Path) -> None:
    make_volume(space.plane, space, tmp_path / "out", "out")
    words = ("--name", "line", "--sync", ".", "--volume", "out:/out", "-np", "2")
    with user.running(*words, "--min-np", "1", "--max-np", "3", "elastic.py") as process:
        read_until(process, r"step \d+ of 2")
        code, _, err = user.type("scale", "line", "3")
        assert code == 0, err
        read_until(process, r"step \d+ of 3")
        assert re.search(r"line +Running +3/3", user.type("jobs")[1])
        assert re.search(r"step \d+ of 2", user.type("logs", "line")[1])
        code, _, err = user.type("scale", "line", "9")
        assert code == 2
        assert "max" in err, err
        (tmp_path / "out/end").touch()
        _, err = process.communicate(timeout=ENDS)
    assert process.returncode == 0, err
    assert user.type("stop", "line")[0] == 0
    code, _, err = user.type("logs", "line")
    assert (code, err.strip().rpartition(": ")[2][:26]) == (2, "there is no job line in na")


def test_what_cannot_run_says_so_and_leaves_nothing(user: User, space: Space) -> None:
    code, _, err = user.run("-np", "3", "--slots", "2", "train.py")
    assert (code, err) == (2, "corro run: -np 3: no multiple of --slots 2\n")
    code, out, _ = user.run("--dry-run", "-np", "2", "train.py")
    assert code == 0
    assert json.loads(out)["spec"]["worker"]["target"] == 2
    assert not space.items("CorroJob")
