"""horovod.mxnet, with an MXNet of its own, in a job of two ranks.

MXNet is archived: its last version needs an old numpy. It is in no environment but .venv-mxnet,
which `make test-mxnet` makes, and no other command.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HERE, Launch
from test_examples import needs_images, some_images
from test_front_ends import tried

PYTHON = HERE.parents[1] / ".venv-mxnet/bin/python"

needs_mxnet = pytest.mark.skipif(not PYTHON.exists(), reason="make test-mxnet makes .venv-mxnet")


@needs_mxnet
@needs_images
def test_two_ranks_learn(launch: Launch, tmp_path: Path) -> None:
    images = str(some_images(tmp_path, 6400))
    job = launch(str(HERE / "mxnet_training.py"), images, python=PYTHON).check()
    first, last = re.findall(r"first ([\d.]+) last ([\d.]+)", job.output)[0]
    assert float(last) < float(first) / 2, job.output


@needs_mxnet
def test_the_doctor_finds_it() -> None:
    assert tried(PYTHON)["MXNet"] == "MXNet 1.9.1: works"


def test_what_is_wrong_with_mxnet_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def said() -> str:
        done = subprocess.run(
            [sys.executable, "-c", "import horovod.mxnet"],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stderr.strip().splitlines()[-1]

    assert said() == (
        "ModuleNotFoundError: horovod.mxnet needs MXNet, which is not installed here:"
        " pip install mxnet"
    )
    # MXNet uses what numpy no longer has.
    (tmp_path / "mxnet.py").write_text("import numpy\nnumpy.no_longer\n")
    assert said().endswith("is installed here: pip install 'numpy<1.24'")
