"""A pipeline of Kubeflow whose step is a CorroJob, run by the real SDK on this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from harness import ROOT, wait_until
from jobs import PATIENCE, Job, Space
from operator_process import PROGRAM

PYTHON = ROOT / "build/kfp/bin/python"
EXAMPLE = ROOT / "examples/kubernetes/kfp_training.py"
LOCAL = """
import sys
from kfp import local
sys.path.insert(0, sys.argv[1])
import kfp_training
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[2])
print("returned", kfp_training.pipeline(ranks=2).output)
"""

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="make build/kfp/.ready makes its Python"
)


def test_the_example_is_a_pipeline(tmp_path: Path) -> None:
    made = tmp_path / "pipeline.yaml"
    subprocess.run([PYTHON, EXAMPLE, made], check=True)
    pipeline = yaml.safe_load(made.read_text())
    assert pipeline["pipelineInfo"]["name"] == "corro-training"
    [executor] = pipeline["deploymentSpec"]["executors"].values()
    assert executor["container"]["image"].startswith("corro-python:")


@pytest.mark.parametrize("code", [0, 3])
def test_a_step_ends_as_its_job_does(space: Space, tmp_path: Path, code: int) -> None:
    config = yaml.safe_load(space.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = space.name
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    path = f"{Path(PROGRAM).parent}:{PYTHON.parent}:{os.environ['PATH']}"
    step = subprocess.Popen(
        [PYTHON, "-c", LOCAL, EXAMPLE.parent, tmp_path / "runs"],
        env=os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        [name] = wait_until(lambda: list(space.items("CorroJob")), "the job", PATIENCE)
        job = Job(space, "CorroJob", name)
        job.wait_for_running(job.workers(0, 0))
        for pod in job.workers(0, 0):
            space.command(pod, f"exit={code}")
        said, _ = step.communicate(timeout=PATIENCE)
    finally:
        step.kill()
    assert (f"returned {name}" in said) == (code == 0), said
    assert (step.returncode == 0) == (code == 0), said
