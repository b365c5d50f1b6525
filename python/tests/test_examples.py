"""The examples, as a reader would run them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import Finished, Launch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
IMAGES = Path("/usr/share/datasets/fashion-mnist")
BIBLE = Path("/usr/lib/bible.data")

needs_images = pytest.mark.skipif(not IMAGES.exists(), reason="needs dataset-fashion-mnist")
needs_bible = pytest.mark.skipif(not BIBLE.exists(), reason="needs bible-kjv-text")


def figures(job: Finished) -> dict[str, float]:
    """Returns the numbers of the line that begins with "demo:"."""
    lines = [line for line in job.check().output.splitlines() if "demo:" in line]
    assert len(lines) == 1, job.output
    return {key: float(value) for key, value in re.findall(r"(\w+)=([\d.]+)", lines[0])}


@needs_images
@pytest.mark.parametrize("ranks", [1, 2])
def test_fashion_mnist_learns_saves_and_resumes(launch: Launch, ranks: int, tmp_path: Path) -> None:
    script, saved = str(EXAMPLES / "fashion_mnist.py"), str(tmp_path / "fashion.pt")
    batch = str(512 // ranks)
    arguments = (script, "--batch", batch, "--lr", str(0.2 / ranks), "--checkpoint", saved)
    first = figures(launch(*arguments, "--epochs", "1", ranks=ranks))
    assert first["accuracy"] > 0.7
    assert first["ranks"] == ranks
    again = launch(*arguments, "--epochs", "1", ranks=ranks).check()  # Nothing is left to do.
    assert "demo:" not in again.output


@needs_images
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_ranks_reach_the_accuracy_of_one(launch: Launch) -> None:
    script = str(EXAMPLES / "fashion_mnist.py")
    two = figures(launch(script, ranks=2, seconds=1500))
    one = figures(launch(script, "--batch", "128", "--lr", "0.15", ranks=1, seconds=1500))
    assert two["accuracy"] >= 0.90
    assert two["accuracy"] == pytest.approx(one["accuracy"], abs=0.005)


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
