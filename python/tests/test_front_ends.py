"""`corro doctor --frameworks`: which front ends work, and why others do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from test_tensorflow import PYTHON as TENSORFLOW
from test_tensorflow import needs_tensorflow


def tried(python: Path | str = sys.executable, **env: str) -> dict[str, str]:
    """Returns what the doctor says of each framework, by the first word of its line."""
    own = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(
        [Path(python).with_name("corro"), "doctor", "--frameworks"],
        env=own | env,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    return {line.split()[0].rstrip(":"): line for line in lines}


def test_what_works_has_its_version_and_the_rest_a_reason() -> None:
    """Also inside of a job, whose ranks it does not wait for."""
    import torch

    lines = tried(CORRO_RANK="0", CORRO_SIZE="2", RANK="0", WORLD_SIZE="2")
    assert lines["PyTorch"] == f"PyTorch {torch.__version__}: works"
    assert lines["TensorFlow"] == (
        "TensorFlow: does not work: corro.tensorflow needs TensorFlow, which is not installed here:"
        " pip install tensorflow"
    )
    assert lines["MXNet"] == (
        "MXNet: does not work: horovod.mxnet needs MXNet, which is not installed here:"
        " pip install mxnet"
    )


def test_a_framework_that_is_too_old_or_crashes_is_told(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("__version__ = '2.11.1'\n")
    (tmp_path / "torch.py").write_text("import os\nos.abort()\n")
    lines = tried(PYTHONPATH=str(tmp_path))
    assert "TensorFlow 2.12 or newer, and 2.11.1 is installed here" in lines["TensorFlow"]
    assert lines["PyTorch"] == "PyTorch: does not work: corro.torch is ended by SIGABRT"
    assert lines["numpy"].endswith(": works")


@needs_tensorflow
def test_a_plug_in_that_is_absent_is_named(tmp_path: Path) -> None:
    where = "import corro; print(corro.__path__[0])"
    installed = subprocess.run(
        [TENSORFLOW, "-c", where], check=True, capture_output=True, text=True
    ).stdout.strip()
    copy = tmp_path / "corro"
    copy.mkdir()
    for path in Path(installed).iterdir():
        if path.name != "libcorro_tensorflow.so":
            (copy / path.name).symlink_to(path)
    assert tried(TENSORFLOW)["TensorFlow"].endswith(": works")
    line = tried(TENSORFLOW, PYTHONPATH=str(tmp_path))["TensorFlow"]
    assert "libcorro_tensorflow.so" in line
    assert "No such file" in line
