"""corro.fit() in jobs of its own: killed ones, and what it shows."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Finished, Launch

from corro.torch.parallel.progress import Progress, bar_interval

pytestmark = pytest.mark.torch22
WORKER = str(Path(__file__).with_name("fit_worker.py"))


def losses(job: Finished) -> Any:
    found = re.findall(r"rank \d+: (\[\[.*\]\])", job.check().output)
    assert found, job.output
    assert len(set(found)) == 1, found
    return json.loads(found[0])


@pytest.mark.apart
def test_a_killed_job_goes_on_by_another_plan_and_with_another_number_of_ranks(
    launch: Launch, tmp_path: Path
) -> None:
    folder = str(tmp_path / "run")
    stages, whole = json.dumps({"pipeline": 2}), json.dumps({"pipeline": 1})
    expected = losses(launch(WORKER, "", whole, "", ranks=1))
    # In the second epoch of three steps, mostly.
    job = launch(WORKER, folder, stages, "step 4")
    assert "killed by SIGKILL" in job.output
    assert "epoch 1/3" in job.output
    job = launch(WORKER, folder, whole, "step 6")
    assert "killed by SIGKILL" in job.output
    assert "epoch 1/3" not in job.output
    job = launch(WORKER, folder, whole, "", ranks=1)
    assert "epoch 3/3  [####################]  22/22  loss " in job.output
    for found, wanted in zip(losses(job), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-5)


@pytest.mark.apart
def test_fit_goes_on_when_a_rank_is_lost(launch: Launch) -> None:
    """Each rank is alone with its stage; the others have a copy of it."""
    stages = json.dumps({"pipeline": 3})
    expected = losses(launch(WORKER, "", "{}", "", ranks=1))
    # After the first batch, which is made once more, and an epoch of 22: in the second step.
    job = launch(WORKER, "", stages, f"sample {8 + 22 + 18}", ranks=3, options=("--min-np", "2"))
    assert "2 of 3 ranks go on" in job.output
    for found, wanted in zip(losses(job), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-5)


def test_the_bar_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    bar = Progress("epoch 1/2", 40, 0.0, stream, _begun=0.0)
    bar.advance(10, 10, 10, 2.5)
    assert stream.getvalue().startswith("\repoch 1/2  [#####---------------]  10/40  loss 2.5  ")
    assert bar.line(10, 2.5, 5.0).endswith("2 samples/s  0:15 left")
    assert bar.line(10, 2.5, 5000.0).endswith("4:10:00 left")
    bar.end(40, 2.0, 1.5)
    last = stream.getvalue().rpartition("\r")[2]
    assert last.startswith("epoch 1/2  [####################]  40/40  loss 2  ")
    assert last.rstrip(" \n").endswith("validation 1.5")
    assert "10/" in Progress("epoch 1/1", 40, None, io.StringIO()).line(10, 1.0, 1.0)
    assert "loss" in Progress("epoch 1/1", None, None, io.StringIO()).line(10, 1.0, 1.0)

    monkeypatch.delenv("CORRO_RANK", raising=False)
    assert bar_interval(stream) is None  # A file has a line an epoch.
    quiet = Progress("epoch 1/1", 40, bar_interval(stream), io.StringIO())
    quiet.advance(40, 40, 40, 1.0)
    assert quiet.stream.getvalue() == ""
    quiet.end(40, 1.0, None)
    assert quiet.stream.getvalue().startswith("epoch 1/1  [#")


def test_a_resumed_epoch_does_not_count_what_was_done_before() -> None:
    bar = Progress("epoch 1/1", 100, 0.0, io.StringIO(), _begun=0.0)
    bar.advance(90, 5, 5, 1.0)
    assert bar.line(90, 1.0, 5.0).endswith("1 samples/s  0:10 left")
