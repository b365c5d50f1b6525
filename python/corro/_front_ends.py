"""Which front ends work here, and why others do not: `corro doctor --frameworks`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

TIMEOUT_S = 180


@dataclass(frozen=True)
class FrontEnd:
    """A front end, and a program that reduces with it and prints its framework's version."""

    title: str
    module: str
    program: str


@dataclass(frozen=True)
class Answer:
    """How it went: the version, or why there is none."""

    title: str
    version: str = ""
    why_not: str = ""

    @property
    def works(self) -> bool:
        """Whether a reduction came to its end."""
        return not self.why_not

    def __str__(self) -> str:
        if self.works:
            return f"{self.title} {self.version}: works"
        return f"{self.title}: does not work: {self.why_not}"


FRONT_ENDS = (
    FrontEnd(
        "PyTorch",
        "corro.torch",
        """\
import torch
front_end.init()
assert front_end.allreduce(torch.ones(2), front_end.Sum).tolist() == [1, 1]
print(torch.__version__)""",
    ),
    FrontEnd(
        "TensorFlow",
        "corro.tensorflow",
        """\
import corro, tensorflow
corro.init()
assert front_end.allreduce(tensorflow.ones(2), corro.Sum).numpy().tolist() == [1, 1]
print(tensorflow.__version__)""",
    ),
    FrontEnd(
        "Keras",
        "horovod.keras",
        """\
import sys
front_end.init()
assert float(front_end.allreduce(1.0)) == 1
keras = sys.modules.get("tf_keras") or import_module("keras")
print(keras.__version__, "on", keras.backend.backend())""",
    ),
    FrontEnd(
        "JAX",
        "corro.jax",
        """\
import corro, jax
corro.init()
assert front_end.allreduce(jax.numpy.ones(2), corro.Sum).tolist() == [1, 1]
print(jax.__version__)""",
    ),
    FrontEnd(
        "MXNet",
        "horovod.mxnet",
        """\
import mxnet
front_end.init()
assert front_end.allreduce(mxnet.nd.ones(2), op=front_end.Sum).asnumpy().tolist() == [1, 1]
print(mxnet.__version__)""",
    ),
    FrontEnd(
        "numpy",
        "corro.numpy",
        """\
import corro, numpy
corro.init()
assert front_end.allreduce(numpy.ones(2), corro.Sum).tolist() == [1, 1]
print(numpy.__version__)""",
    ),
)


def examine(front_ends: Sequence[FrontEnd] = FRONT_ENDS) -> list[Answer]:
    """Tries each front end in a process of its own, all at once, and says how it went.

    Blocks until the slowest has been imported. This process imports none of them.
    """
    started = [_start(one) for one in front_ends]
    return [_answer_of(one, child) for one, child in zip(front_ends, started, strict=True)]


def _start(one: FrontEnd) -> subprocess.Popen[str]:
    loading = f"from importlib import import_module\nfront_end = import_module({one.module!r})\n"
    return subprocess.Popen(
        [sys.executable, "-c", loading + one.program],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def _environment() -> dict[str, str]:
    """This process's, without a job: the child is one of its own; nor are files here modules."""
    of_jobs = ("CORRO_", "HOROVOD_")
    alone = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(of_jobs) and name not in ("RANK", "WORLD_SIZE")
    }
    return alone | {"PYTHONSAFEPATH": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def _answer_of(one: FrontEnd, child: subprocess.Popen[str]) -> Answer:
    try:
        output, errors = child.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return Answer(one.title, why_not=f"{one.module} does not come to an end in {TIMEOUT_S} s")
    if child.returncode == 0:
        return Answer(one.title, version=output.strip().splitlines()[-1])
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        return Answer(one.title, why_not=f"{one.module} is ended by {name}")
    return Answer(one.title, why_not=_reason(one.module, errors))


def _reason(module: str, errors: str) -> str:
    """The exception's message, which is a traceback's last line; its class where that says more."""
    last = (errors.strip().splitlines() or ["no reason given"])[-1]
    kind, _, message = last.partition(": ")
    absent = re.fullmatch(r"No module named '([\w.]+)'", message)
    if absent and absent[1] == "horovod":
        return f"{module} is not installed here: pip install corro-horovod"
    if absent and f"{module}.".startswith(f"{absent[1]}."):
        return f"there is no {module} in this version"
    return message if kind in ("ImportError", "ModuleNotFoundError") else f"{module}: {last}"


def main() -> int:
    """Prints a line for each framework. Status 1 if none works."""
    answers = examine()
    print("\n".join(str(one) for one in answers))
    return 0 if any(one.works for one in answers) else 1


if __name__ == "__main__":
    sys.exit(main())
