"""The examples, as a reader would run them."""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Finished, Launch
from test_tensorflow import PYTHON as TENSORFLOW
from test_tensorflow import QUIET, needs_tensorflow

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
IMAGES = Path("/usr/share/datasets/fashion-mnist")
BIBLE = Path("/usr/lib/bible.data")
RATINGS = EXAMPLES.parent / "build/data/ml-100k/ml-100k.user"

needs_images = pytest.mark.skipif(not IMAGES.exists(), reason="needs dataset-fashion-mnist")
needs_ratings = pytest.mark.skipif(not RATINGS.exists(), reason="needs tools/movielens.py")
needs_bible = pytest.mark.skipif(not BIBLE.exists(), reason="needs bible-kjv-text")


def figures(job: Finished) -> dict[str, float]:
    """Returns the numbers of the line that begins with "demo:"."""
    lines = [line for line in job.check().output.splitlines() if "demo:" in line]
    assert len(lines) == 1, job.output
    return {key: float(value) for key, value in re.findall(r"(\w+)=([\d.]+)", lines[0])}


def recorded(
    launch: Launch, kept: Path, *arguments: str, ranks: int = 2, count: int = 100
) -> list[float]:
    """Returns the first losses of the example: over all ranks, each of which has its part."""
    record = (str(HERE / "record_losses.py"), str(count), str(kept))
    example = str(EXAMPLES / "fashion_mnist.py")
    launch(*record, example, *arguments, ranks=ranks).check()
    of_ranks = [json.loads(Path(f"{kept}-{rank}").read_text()) for rank in range(ranks)]
    return [sum(parts) / ranks for parts in zip(*of_ranks, strict=True)]


@needs_images
@pytest.mark.apart
def test_two_ranks_have_the_losses_of_one(launch: Launch, tmp_path: Path) -> None:
    """With the same seed and the same global batch."""
    one = recorded(launch, tmp_path / "one", "--batch", "128", "--lr", "0.15", ranks=1)
    two = recorded(launch, tmp_path / "two", "--batch", "64", "--lr", "0.075")
    assert len(one) == 100
    assert one[-1] < one[0] / 2
    assert two == pytest.approx(one, abs=1e-4)


def some_images(directory: Path, count: int) -> Path:
    """Returns a directory with the first images of each file."""
    for file in IMAGES.glob("*.gz"):
        header, size = (16, 28 * 28) if "images" in file.name else (8, 1)
        with gzip.open(file) as whole, gzip.open(directory / file.name, "wb") as part:
            part.write(whole.read(header + count * size))
    return directory


@needs_images
@pytest.mark.slow  # `make demo`, which .ci/run looks at, is the whole of it.
def test_fashion_mnist_learns(launch: Launch, tmp_path: Path) -> None:
    images = str(some_images(tmp_path, 12800))
    job = figures(launch(str(EXAMPLES / "fashion_mnist.py"), "--data", images, "--epochs", "1"))
    assert job["accuracy"] > 0.5
    assert job["ranks"] == 2
    assert job["images_per_s"] > 0


@needs_images
@pytest.mark.apart
def test_fashion_mnist_goes_on_from_its_checkpoint(launch: Launch, tmp_path: Path) -> None:
    images = str(some_images(tmp_path, 1280))  # Ten steps in a data epoch of two ranks.
    arguments = ("--data", images, "--epochs", "2")
    whole = recorded(launch, tmp_path / "whole", *arguments)
    assert len(whole) == 20
    saving = (*arguments, "--checkpoint", str(tmp_path / "saved.pt"))
    stopped = recorded(launch, tmp_path / "stopped", *saving, count=15)
    assert stopped == whole[:15]
    assert recorded(launch, tmp_path / "resumed", *saving) == whole[10:]


@needs_images
def test_the_elastic_one_learns_although_ranks_are_lost(launch: Launch, tmp_path: Path) -> None:
    images = str(some_images(tmp_path, 12800))
    killing = (str(HERE / "killed_in_step.py"), "0", "20")
    script = (str(EXAMPLES / "elastic_fashion_mnist.py"), "--data", images, "--epochs", "2")
    job = launch(*killing, *script, ranks=3, options=("--min-np", "2"))
    assert "epoch 2 with 2 ranks" in job.output
    reached = figures(job)
    assert reached["accuracy"] > 0.6
    # The step in which the rank was killed had its gradients, or was done again by two ranks. These
    # took the rest of the first data epoch, 70 or 72 steps, and all of the second one.
    assert reached["steps"] in (20 + 70 + 100, 19 + 72 + 100)
    assert reached["images"] == 2 * 12800


@needs_images
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_ranks_reach_the_accuracy_of_one(launch: Launch) -> None:
    script = str(EXAMPLES / "fashion_mnist.py")
    two = figures(launch(script, ranks=2, seconds=1500))
    one = figures(launch(script, "--batch", "128", "--lr", "0.1", ranks=1, seconds=1500))
    assert two["accuracy"] >= 0.90
    assert two["accuracy"] == pytest.approx(one["accuracy"], abs=0.005)


@needs_images
@pytest.mark.apart
def test_numpy_alone_learns_and_goes_on_from_its_checkpoint(launch: Launch, tmp_path: Path) -> None:
    images = str(some_images(tmp_path, 12800))
    script = (str(EXAMPLES / "numpy_mnist.py"), "--data", images)
    saving = ("--checkpoint", str(tmp_path / "saved.npz"))
    figures(launch(*script, "--epochs", "1", *saving))
    job = launch(*script, "--epochs", "2", *saving)
    assert "epoch 2/2 accuracy" in job.output
    assert "epoch 1/2" not in job.output
    assert figures(job)["accuracy"] > 0.7


@needs_bible
def test_the_gpt_runs(launch: Launch) -> None:
    job = figures(launch(str(EXAMPLES / "gpt_bible.py"), "--steps", "20", "--rows", "200"))
    assert 1 < job["bits_per_byte"] < 6.2  # Better than guessing among 73 symbols.
    assert job["bigram"] == pytest.approx(3.476, abs=0.001)


@needs_bible
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_gpt_beats_bigrams(launch: Launch) -> None:
    job = figures(launch(str(EXAMPLES / "gpt_bible.py"), seconds=1500))
    assert job["bits_per_byte"] < job["bigram"]


@needs_bible
def test_the_gpt_by_a_plan_goes_on_from_its_checkpoint(launch: Launch, tmp_path: Path) -> None:
    script, saving = str(EXAMPLES / "gpt_auto.py"), ("--checkpoint", str(tmp_path / "saved"))
    job = launch(script, "--steps", "15", *saving, ranks=4)
    assert 1 < figures(job)["bits_per_byte"] < 5  # After the first steps; at first it is 6.
    assert "step time" in job.output
    assert "4 devices" in job.output
    again = launch(script, "--steps", "15", *saving, ranks=2)  # Is at its end.
    assert figures(again) == {**figures(job), "ranks": 2}
    assert "epoch 1/1" not in again.output


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_pipeline_has_the_losses_of_one_process(launch: Launch, ranks: int) -> None:
    finished = launch(str(EXAMPLES / "gpt_pipeline.py"), ranks=ranks).check()
    line = finished.output.strip().splitlines()[-1]
    found = re.search(
        r"pipeline: ranks=(\d+) micro_batches=\d+ steps=(\d+) max_loss_difference=(\S+)$", line
    )
    assert found, finished.output
    assert int(found[1]) == ranks
    assert int(found[2]) >= 5
    assert float(found[3]) <= 1e-5


def test_the_corrojob_goes_on_from_its_checkpoint(launch: Launch, tmp_path: Path) -> None:
    """Its script, as it is in the manifest; pods are tested in tests/kube."""
    import yaml  # Not in the environment with the oldest torch, which reads this file, too.

    manifests = yaml.safe_load_all((EXAMPLES / "kubernetes" / "corrojob.yaml").read_text())
    script = tmp_path / "train.py"
    script.write_text(next(m["data"]["train.py"] for m in manifests if m["kind"] == "ConfigMap"))

    def run(steps: str) -> str:
        return launch(str(script), CHECKPOINTS=str(tmp_path), STEPS=steps).check().output

    assert "starts at step 0 with 2 ranks" in run("1500")
    again = run("2000")
    assert "starts at step 1000 with 2 ranks" in again
    assert "line: 3.00 x + 1.00 after 2000 steps" in again


@needs_images
@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("horovod_mnist.py", ["--fp16-allreduce"]),  # With what travels halved.
        ("horovod_elastic_mnist.py", []),
    ],
)
def test_a_script_of_horovods_documentation(
    tmp_path: Path, script: str, options: list[str]
) -> None:
    """Started as it says."""
    program = [str(Path(sys.executable).with_name("horovodrun")), "-np", "2", sys.executable]
    job = subprocess.run(
        [*program, str(EXAMPLES / script), "--epochs", "1", "--images", "12000", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    found = re.search(r"^\[0\]<stdout>:demo: .*accuracy=([\d.]+)", job.stdout, re.MULTILINE)
    assert found, job.stdout
    assert float(found[1]) > 0.6


@needs_images
@needs_tensorflow
@pytest.mark.apart
def test_the_script_that_horovod_became_known_by(tmp_path: Path) -> None:
    """Started as it always was. Rank 0 alone has a checkpoint, whose accuracy it says."""
    script = tmp_path / "train.py"
    script.write_text((EXAMPLES / "tensorflow_mnist.py").read_text())
    horovodrun = [str(TENSORFLOW.with_name("horovodrun")), "-np", "4", "-H", "localhost:4"]
    job = subprocess.run(
        [*horovodrun, str(TENSORFLOW), "train.py", "--steps", "800"],
        cwd=tmp_path,
        env=os.environ | QUIET,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    losses = re.findall(r"^\[(\d)\]<stdout>:step \d+ loss ([\d.]+)", job.stdout, re.MULTILINE)
    assert {rank for rank, _ in losses} == {"0"}
    assert float(losses[-1][1]) < float(losses[0][1]) / 2
    found = re.search(r"demo: accuracy=([\d.]+) ranks=4 steps=200$", job.stdout, re.MULTILINE)
    assert found, job.stdout
    assert float(found[1]) > 0.7
    # A second writer would have left events of its own.
    assert len(list((tmp_path / "checkpoints").glob("events.out.tfevents.*"))) == 1


@pytest.mark.parametrize("example", ["experts", "actors", "teacher"])
def test_services_learn_together(launch: Launch, example: str, tmp_path: Path) -> None:
    script, picture = str(EXAMPLES / f"services_{example}.py"), tmp_path / "graph.svg"
    options = ("--picture", str(picture)) if example == "experts" else ()
    reached = figures(launch(script, "--steps", "150", *options, ranks=2))
    if example == "experts":
        assert reached["last"] < reached["first"] / 2
        assert "expert1" in picture.read_text()
    else:
        assert reached["last"] > reached["first"] + 0.3


@needs_ratings
@pytest.mark.parametrize(("ranks", "servers"), [(1, 0), (2, 2)])
def test_a_deepfm_predicts_as_one_process_does(launch: Launch, ranks: int, servers: int) -> None:
    options = ("--servers", str(servers)) if servers else ()
    script = (str(EXAMPLES / "ctr_deepfm.py"), "--epochs", "1")
    job = launch(*script, ranks=ranks, options=options).check()
    last = job.output.strip().splitlines()[-1]
    found = re.search(r"ctr: auc=(0\.\d{4}) alone=(0\.\d{4}) workers=(\d) servers=(\d)$", last)
    assert found, job.output
    assert float(found[1]) > 0.76  # By the films' means alone it is 0.725.
    assert float(found[1]) == pytest.approx(float(found[2]), abs=0.001)
    assert (int(found[3]), int(found[4])) == (ranks, servers)


@needs_ratings
def test_a_deepfm_survives_the_loss_of_a_server_and_uses_one_that_comes(launch: Launch) -> None:
    script = (str(HERE / "disturbed.py"), str(EXAMPLES / "ctr_deepfm.py"), "--epochs", "1")
    job = launch(*script, options=("--servers", "2")).check()
    found = re.search(
        r"ctr: auc=(0\.\d{4}) alone=(0\.\d{4}) workers=2 servers=2$", job.output, re.M
    )
    assert found, job.output
    assert float(found[1]) == pytest.approx(float(found[2]), abs=0.001)
    assert "corro: server 0 was lost: killed by SIGKILL\n" in job.output
    assert re.search(r"corro: server [23] is started\n", job.output)


@needs_ratings
def test_two_towers_find_films_that_are_not_only_popular(launch: Launch) -> None:
    script = (str(EXAMPLES / "two_tower.py"), "--epochs", "4")
    job = launch(*script, options=("--servers", "2")).check()
    words = r"two_tower: recall@20=(0\.\d{4}) popular=(0\.\d{4}) workers=2 servers=2"
    found = re.search(words, job.output)
    assert found, job.output
    assert float(found[1]) > float(found[2]) + 0.03


def test_equal_scores_count_half() -> None:
    """In the example's area under the curve, beside one by all pairs."""
    import torch

    tree = ast.parse((EXAMPLES / "ctr_deepfm.py").read_text())
    function = next(one for one in tree.body if getattr(one, "name", "") == "auc")
    names: dict[str, Any] = {"Tensor": torch.Tensor}
    code = compile(ast.Module([function], []), "ctr_deepfm.py", "exec")
    exec(code, names)  # noqa: S102  # The script trains when it is imported.
    generator = torch.Generator().manual_seed(1)
    scores = torch.randint(0, 9, (80,), generator=generator) / 8
    labels = torch.randint(0, 2, (80,), generator=generator).float()
    differences = scores[labels > 0][:, None] - scores[labels == 0]
    expected = (differences > 0).double().mean() + (differences == 0).double().mean() / 2
    assert names["auc"](scores, labels) == pytest.approx(float(expected))
