"""`corro plan --measure`: all plans of a model run, on ranks of this host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corro.errors import InvalidArgumentError
from corro.torch.measuring.candidates import Question, candidates, micro_batches

PROGRAM = os.environ.get("CORRO_PROGRAM") or str(Path(sys.executable).with_name("corro"))

MODEL = """
import torch
from torch import nn

WIDTH = 24

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.linear(x))

def build(samples):
    x = torch.ones(samples, WIDTH)
    return nn.Sequential(*[Layer() for _ in range(4)]), x, lambda y: y.square().mean()

def nested(samples):
    return Layer(), torch.ones(samples, WIDTH), lambda y: y.square().mean()

def broken(samples):
    raise ValueError("no data here")
"""

CLUSTER = """
corro_cluster: 1
name: here
devices:
  core: {memory: 1 GB, peak: {f32: 10 GFLOP/s}, memory_bandwidth: 10 GB/s}
hosts:
  - {name: localhost, device: core, devices: RANKS, link: {bandwidth: 1 GB/s}}
"""


def measure(
    folder: Path, function: str, *options: str, ranks: int = 2
) -> subprocess.CompletedProcess[str]:
    (folder / "model.py").write_text(MODEL)
    (folder / "cluster.yaml").write_text(CLUSTER.replace("RANKS", str(ranks)))
    arguments = ["--model", f"model.py:{function}", "--cluster", "cluster.yaml", *options]
    return subprocess.run(
        [PROGRAM, "plan", "--measure", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=folder,
    )


def measured(folder: Path, *options: str, ranks: int = 2) -> dict[str, Any]:
    done = measure(folder, "build", "--json", "out.json", *options, ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert "Steps are predicted within" in done.stdout
    document: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return document


@pytest.mark.apart
def test_every_plan_runs_and_is_predicted(tmp_path: Path) -> None:
    document = measured(tmp_path, "--global-batch", "4")
    shapes = [(each["data"], each["pipeline"], each["micro_batch"]) for each in document["plans"]]
    none = [*((1, 2, size) for size in (1, 2, 4)), *((2, 1, size) for size in (1, 2))]
    assert sorted(shapes) == sorted(none * 2)
    for each in document["plans"]:
        assert len(each["measured_seconds"]) == 9
        assert min(each["measured_seconds"]) > 0
        assert each["predicted_seconds"] > 0
        assert len(each["measured_bytes"]) == len(each["predicted_bytes"]) == 2
    profile = document["profile"]
    assert [each["samples"] for each in profile["layers"]["Layer"]] == [1, 2, 4]
    assert document["summary"]["picked_behind"] >= 0


@pytest.mark.apart
def test_more_ranks_than_cores_wait_instead_of_computing(tmp_path: Path) -> None:
    ranks = 2 * (os.cpu_count() or 1)
    if ranks > 16:
        pytest.skip(f"needs {ranks} ranks here")
    document = measured(tmp_path, "--global-batch", str(ranks), ranks=ranks)
    assert {each["data"] * each["pipeline"] for each in document["plans"]} == {ranks}
    assert all(each["measured_bytes"] == [] for each in document["plans"])


@pytest.mark.apart
def test_plans_that_do_not_fit_are_named(tmp_path: Path) -> None:
    done = measure(tmp_path, "build", "--global-batch", "4", "--memory-limit", "1 KiB")
    assert done.returncode == 0, done.stderr
    assert "No plan fits." in done.stdout
    assert done.stdout.count("does not fit") == 10


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("nested", "must return an nn.Sequential to be cut into stages, not a Layer"),
        ("none", "model.py has no function none"),
        ("broken", "ValueError: no data here"),
    ],
)
def test_a_model_that_cannot_be_cut_is_one_line(tmp_path: Path, function: str, words: str) -> None:
    done = measure(tmp_path, function)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("corro plan: ")]
    assert len(lines) == 1
    assert words in lines[0]
    assert "Traceback" not in done.stderr


def test_all_divisions_of_the_batch_are_candidates() -> None:
    question = Question("c.yaml", ranks=4, global_batch=12)
    found = candidates(question, layers=2)
    assert {(each.data, each.pipeline) for each in found} == {(4, 1), (2, 2)}
    for each in found:
        assert each.data * each.micro_batch * each.micro_batches == 12
    assert micro_batches(question) == [1, 2, 3, 4, 6, 12]
    with pytest.raises(InvalidArgumentError, match="cannot be divided among 3 ranks"):
        candidates(Question("c.yaml", ranks=3, global_batch=2), layers=1)


def test_a_file_that_cannot_be_written_is_refused_before_measuring(tmp_path: Path) -> None:
    done = measure(tmp_path, "build", "--json", "no/such/out.json")
    assert done.returncode == 2
    assert "corro plan: --json: no/such/out.json: cannot be written" in done.stderr
    assert "measuring each layer" not in done.stderr
