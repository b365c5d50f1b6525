"""corro.log(): what a program logs is seen by those who look at its job, and by writers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

import corro
from corro import _log_writers
from corro.errors import InvalidArgumentError

from .conftest import DEADLINE, Job, Launcher, wait_until

# Both ranks go on until the file `end` is there; rank 1 is the slow one.
TRAINS = """
import os, time
import corro
import corro.numpy

corro.init()
rank = corro.rank()
step, going = 0, True
while going:
    step += 1
    time.sleep(0.03 if rank == 1 else 0.001)
    corro.log({"loss": 1 / step + rank}, gap=float("nan"), step=step, of=1_000_000)
    going = corro.numpy.allreduce(float(not os.path.exists("end")), corro.Min) > 0
"""

NAMES = """
import corro

corro.init()
for i in range(16):
    corro.log({f"name {i}": i})
try:
    corro.log({"name 0": 7, "another": 8})
except corro.ResourceExhaustedError as error:
    print(error)
corro.log({"name 15": 1})
"""

STEPS = """
import corro

class Writer:
    def write(self, step, values):
        print(step, values, flush=True)

from corro import _log_writers
_log_writers.writers = lambda: [Writer()]
corro.log(before=1)
corro.init()
corro.log(a=1)
corro.set_step(7)
corro.log(a=2)
corro.log(a=3, step=9)
corro.shutdown()
corro.log(after=4, step=10)
"""


def status(launcher: Launcher, job: Job) -> dict[str, Any]:
    seen = subprocess.run(
        [launcher.program, "status", str(job.process.pid), "--json"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    told: dict[str, Any] = json.loads(seen.stdout) if seen.returncode == 0 else {}
    return told


@pytest.fixture
def job(launcher: Launcher) -> Iterator[Job]:
    started = launcher.start("-np", 2, launcher.script(TRAINS))
    yield started
    (launcher.directory / "end").touch()
    assert started.wait() == 0, started.err


def test_the_newest_values_and_their_course_are_seen(launcher: Launcher, job: Job) -> None:
    def points() -> list[list[float]]:
        metrics = status(launcher, job).get("metrics", [])
        return metrics[0]["points"] if metrics else []

    wait_until(lambda: len(points()) > 2, "a course")
    told = status(launcher, job)
    loss, gap = told["metrics"]
    assert loss["name"] == "loss"
    assert loss["ranks"] == 2
    assert 1 <= loss["most"] < 2, "rank 1 has one more"
    assert loss["least"] < loss["mean"] < loss["most"]
    assert [point[1] for point in points()] == sorted({point[1] for point in points()})
    assert gap["mean"] == "NaN", "it is shown, and JSON has no such number"
    assert told["ranks"][1]["values"]["loss"][1] == loss["most"]


def test_progress_and_the_time_that_is_left_are_seen(launcher: Launcher, job: Job) -> None:
    def progress() -> dict[str, Any]:
        return status(launcher, job).get("progress") or {}

    wait_until(lambda: bool(progress().get("eta_seconds")), "an ETA")
    told = progress()
    assert told["of"] == 1_000_000
    assert 0 < told["step"] < 1_000_000
    left = (told["of"] - told["step"]) / told["steps_per_second"]
    assert told["eta_seconds"] == pytest.approx(left)


def test_the_rank_that_waits_least_is_the_slow_one(launcher: Launcher, job: Job) -> None:
    def shares() -> list[float]:
        ranks = status(launcher, job).get("ranks", [])
        return [rank["wait_share"] for rank in ranks if rank["wait_share"] is not None]

    wait_until(lambda: len(shares()) == 2 and shares()[0] > shares()[1] + 0.3, "who is slow")
    assert all(0 <= share <= 1 for share in shares())
    assert all(rank["step_seconds"] > 0 for rank in status(launcher, job)["ranks"])


def test_the_end_is_kept_with_the_logs(launcher: Launcher) -> None:
    (launcher.directory / "end").touch()
    job = launcher.run("-np", 2, launcher.script(TRAINS))
    assert job.process.returncode == 0, job.err
    values: dict[int, Any] = {}
    for line in (job.logs / "history.jsonl").read_text().splitlines():
        for rank in json.loads(line).get("ranks", []):
            if rank.get("values"):
                values[rank["place"]] = rank["values"]
    assert values == {
        0: {"loss": [1, 1.0], "gap": [1, "NaN"]},
        1: {"loss": [1, 2.0], "gap": [1, "NaN"]},
    }


def test_a_seventeenth_name_is_one_clear_error(launcher: Launcher) -> None:
    job = launcher.run("-np", 1, "--quiet", launcher.script(NAMES))
    assert job.process.returncode == 0, job.err
    [said] = job.lines()
    assert "'another' would be name 17 of this process, and it has 16 at most" in said


def test_writers_get_what_is_logged_with_its_step(launcher: Launcher) -> None:
    job = launcher.run("-np", 1, launcher.script(STEPS))
    assert job.process.returncode == 0, job.err
    assert [line.removeprefix("[0] ") for line in job.lines()] == [
        "0 {'before': 1.0}",
        "0 {'a': 1.0}",
        "7 {'a': 2.0}",
        "9 {'a': 3.0}",
        "10 {'after': 4.0}",
    ]


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        ({"loss": "high"}, {}, "loss has to be a number, not 'high'"),
        ({"loss": None}, {}, "loss has to be a number, not None"),
        ({"": 1}, {}, "a name has 1 to 31 printable bytes of UTF-8, '' does not"),
        ({"ü" * 16: 1}, {}, "a name has 1 to 31 printable bytes of UTF-8, 'üü"),
        ({"a\nb": 1}, {}, r"a name has 1 to 31 printable bytes of UTF-8, 'a\nb' does not"),
        ({7: 1}, {}, "a name has 1 to 31 printable bytes of UTF-8, 7 does not"),
        (0.3, {}, "corro.log() takes numbers by their names, as loss=0.3"),
        ({"loss": 1}, {"step": -1}, "step has to be a whole number from 0 to"),
        ({"loss": 1}, {"step": 1.5}, "step has to be a whole number from 0 to"),
        ({"loss": 1}, {"of": 0}, "of has to be a whole number from 1 to"),
    ],
)
def test_a_mistake_is_one_clear_line(values: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        corro.log(values, **options)
    assert said in str(raised.value)


def test_without_a_job_only_writers_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = pytest.importorskip("numpy")
    written: list[tuple[int, dict[str, float]]] = []

    class Writer:
        def write(self, step: int, values: dict[str, float]) -> None:
            written.append((step, values))

    corro.log(loss=0.5)
    monkeypatch.setattr(_log_writers, "writers", lambda: [Writer()])
    corro.log({"a b": 1}, loss=numpy.float32(0.5), right=True, step=3, of=9)
    assert written == [(3, {"a b": 1.0, "loss": 0.5, "right": 1.0})]


def test_a_tensor_of_one_element_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    written: list[dict[str, float]] = []

    class Writer:
        def write(self, _step: int, values: dict[str, float]) -> None:
            written.append(values)

    monkeypatch.setattr(_log_writers, "writers", lambda: [Writer()])
    corro.log(loss=torch.tensor(0.5, requires_grad=True), shape=torch.tensor([2]))
    assert written == [{"loss": 0.5, "shape": 2.0}]
    with pytest.raises(InvalidArgumentError, match="loss has to be a number"):
        corro.log(loss=torch.zeros(2))
