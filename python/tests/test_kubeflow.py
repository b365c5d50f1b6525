"""What Kubeflow Pipelines shows of a job beside its step."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE

from corro import kubeflow

ROOT = HERE.parents[1]
PYTHON = ROOT / "build/kfp/bin/python"
needs_kfp = pytest.mark.skipif(
    not PYTHON.with_name("corro").exists(), reason="make test-writers makes build/kfp/.corro"
)
HOSTILE = "<script>document.title='taken'</script>"

LOCAL = """
import json, sys
from kfp import local
sys.path.insert(0, sys.argv[1])
import kfp_training
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[2])
step = kfp_training.train_here(command=["python", sys.argv[3]], ranks=2)
print(json.dumps({name: [made.metadata, made.path] for name, made in step.outputs.items()}))
"""
TRAINING = """
import corro

corro.init()
for step in range(1, 4):
    corro.set_step(step)
    corro.barrier()
print("rank", corro.rank(), "has trained")
"""


def write(folder: Path, *lines: dict[str, Any]) -> Path:
    head = {"corro_history": 1, "time": 100.0, "job": "3f2a", "command": HOSTILE}
    text = "".join(json.dumps(line) + "\n" for line in (head, *lines))
    (folder / "history.jsonl").write_text(text)
    return folder


def test_metrics_are_those_of_the_history(tmp_path: Path) -> None:
    kept = [{"event": {"time": 103.0, "kind": "checkpoint", "step": 10}}] * 2
    started = [{"event": {"time": 101.0, "kind": "started", "place": place}} for place in (0, 1)]
    steps = {"ranks": [{"place": 0, "step": 20}, {"place": 1, "step": 19}]}
    picture = {"time": 104.0, "state": "done", "summary": "done", "epoch": 1, "lost": 1, **steps}
    assert kubeflow.report(write(tmp_path, *started, *kept, picture)).metrics == {
        "seconds": 4.0,
        "ranks": 2,
        "failed_ranks": 1,
        "epochs": 2,
        "checkpoints": 1,
        "step": 20,
        "steps_per_second": 5.0,
    }


def test_text_of_others_is_text(tmp_path: Path) -> None:
    event = {"event": {"time": 101.0, "kind": "failure", "host": HOSTILE, "cause": HOSTILE}}
    picture = {"time": 102.0, "state": HOSTILE, "summary": HOSTILE}
    page = kubeflow.report(write(tmp_path, event, picture)).html
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 5


def test_a_job_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    report = kubeflow.report(write(tmp_path))
    assert report.metrics["steps_per_second"] == 0
    assert "The job begins." in report.html


@needs_kfp
def test_a_step_has_logs_metrics_and_a_page(tmp_path: Path) -> None:
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    example = ROOT / "examples/kubernetes"
    step = subprocess.run(
        [PYTHON, "-c", LOCAL, example, tmp_path / "runs", script],
        env=os.environ | {"PATH": f"{PYTHON.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert step.returncode == 0, step.stdout + step.stderr
    assert "has trained" in step.stdout
    outputs = json.loads(step.stdout.splitlines()[-1])
    metadata, _ = outputs["metrics"]
    assert metadata["ranks"] == 2
    assert metadata["failed_ranks"] == 0
    page = Path(outputs["page"][1]).read_text()
    assert "every rank has done its work" in page
