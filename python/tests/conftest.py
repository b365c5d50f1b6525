"""Fixtures of the Python tests.

Tests under ranks/, horovod/, tensorflow_ranks/, keras_ranks/ and jax_ranks/ run inside of every
rank of a job: test_ranks.py, test_horovod.py, test_tensorflow.py, test_keras.py and test_jax.py
start pytest there, with several numbers of ranks. All other tests are ordinary ones and start jobs
through the fixture `launch`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("conformance.verbs")

HERE = Path(__file__).resolve().parent
IN_RANKS = "CORRO_TEST_IN_RANKS" in os.environ
RANKS = ["ranks", "horovod", "tensorflow_ranks", "keras_ranks", "jax_ranks"]
collect_ignore = [] if IN_RANKS else RANKS


def pytest_collection_finish() -> None:
    """Ranks compile nothing, and those of numpy alone load no torch.

    Those of torchrun keep the real compiler, as users have it below DDP, FSDP and optimizers.
    """
    if IN_RANKS and "torch" in sys.modules and "CORRO_RANK" in os.environ:
        import without_compiler

        without_compiler.install()


@dataclass(frozen=True)
class Finished:
    """A job that has ended."""

    code: int
    output: str

    def check(self) -> Finished:
        assert self.code == 0, f"exit status {self.code}\n{self.output}"
        return self


Launch = Callable[..., Finished]
# What is measured when a job starts decides nothing, but where that is the subject.
DEFAULTS = {"CORRO_TIMEOUT": "60", "CORRO_DETERMINISTIC": "1", "OMP_NUM_THREADS": "1"}


def command(
    launcher: str,
    ranks: int,
    options: Sequence[str] = (),
    python: str | os.PathLike[str] = sys.executable,
) -> list[str]:
    """Returns what starts a Python program on so many ranks; the options are `corro run`'s."""
    if launcher == "torchrun":
        run = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1"]
        return [
            *run,
            "--rdzv-backend=c10d",
            "--rdzv-endpoint=127.0.0.1:0",
            f"--nproc-per-node={ranks}",
        ]
    program = Path(python).with_name("corro")
    return [str(program), "run", "-np", str(ranks), "--show", "all", *options, str(python)]


# Of a job, in seconds: far more than any needs on a machine that is not quick. It ends what hangs.
BOUND = 800.0


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts a Python program on several ranks and waits for its end; ends what is left of it."""
    started: list[subprocess.Popen[str]] = []

    def run(
        *arguments: str,
        ranks: int = 2,
        launcher: str = "corro",
        options: Sequence[str] = (),
        python: str | os.PathLike[str] = sys.executable,
        inside: Sequence[str] = (),
        seconds: float = BOUND,
        **env: str,
    ) -> Finished:
        process = subprocess.Popen(
            [*inside, *command(launcher, ranks, options, python), *arguments],
            cwd=tmp_path,
            env={**os.environ, **DEFAULTS, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            output += f"\nended by the test after {seconds} s"
        return Finished(process.returncode, output)

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def elastic(launch: Launch, tmp_path: Path) -> Any:
    """Returns what runs a scenario of ranks that train with numpy, which are started in no time."""
    from elastic_jobs import WITH_NUMPY, starter

    return starter(launch, tmp_path, WITH_NUMPY)


@pytest.fixture
def elastic_torch(launch: Launch, tmp_path: Path) -> Any:
    """Returns what runs a scenario of ranks that train with torch."""
    from elastic_jobs import WITH_TORCH, starter

    return starter(launch, tmp_path, WITH_TORCH)


def pass_in_ranks(
    launch: Launch, folder: str, python: str | os.PathLike[str], ranks: int, **env: str
) -> None:
    """Runs a framework's tests on every rank of a job, with its own Python; they have to pass."""
    inside = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=600"]
    env |= {"CORRO_TEST_IN_RANKS": "1"}
    launch(*inside, str(HERE / folder), python=python, ranks=ranks, **env).check()
