"""What corro.log() hands to TensorBoard, MLflow and W&B.

The tools are in no environment but .venv-writers, which `make test-writers` makes. A file stands in
for them elsewhere.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, Launch

from corro import InvalidArgumentError, _log_writers

PYTHON = HERE.parents[1] / ".venv-writers/bin/python"
needs_tools = pytest.mark.skipif(
    not PYTHON.exists(), reason="make test-writers makes .venv-writers"
)

# A tool that writes a file, once another file says that it may.
FILE = """
import os, sys, time
from corro import _log_tools

class File:
    def __init__(self, where):
        while not os.path.exists(where + ".go"):
            time.sleep(0.01)
        self.file = open(where, "w")
    def write(self, records):
        for record in records:
            print(record.step, record.values["loss"], file=self.file, flush=True)
    def close(self):
        print("closed", file=self.file, flush=True)

_log_tools.TOOLS["file"] = File
_log_tools.main()
"""

TRAINING = """
import os, signal, time
import corro
from corro._log_writers import writers

corro.init()
for step in range(1, 21):
    for writer in writers():
        writer.write(step, {"loss": 1 / step, "accuracy": step / 20})
if "DIES" in os.environ and corro.rank() == 0:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator("runs")
    while len(events.Tags()["scalars"]) < 2 or len(events.Scalars("loss")) < 20:
        time.sleep(0.05)
        events.Reload()
    os.kill(os.getpid(), signal.SIGKILL)
"""

READ_TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1])
events.Reload()
tags = events.Tags()["scalars"]
told = {tag: [[one.step, one.value] for one in events.Scalars(tag)] for tag in tags}
print(json.dumps(told))
"""

READ_MLFLOW = """
import json, sys
import mlflow

client = mlflow.MlflowClient()
[experiment] = client.search_experiments(filter_string=f"name = '{sys.argv[1]}'")
[run] = client.search_runs([experiment.experiment_id])
told = {name: [[one.step, one.value] for one in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics}
print(json.dumps({"status": run.info.status, "values": told}))
"""

# W&B's file has LevelDB's log format behind 7 bytes: blocks of 32 KiB. In front of part of a record
# are a checksum (4 bytes), its length (2), and whether it is whole (1) or the last one (4).
READ_WANDB = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2

data, at, part, rows, projects = open(sys.argv[1], "rb").read(), 7, b"", [], []
while at + 7 <= len(data):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    length, kind = struct.unpack_from("<HB", data, at + 4)
    part += data[at + 7 : at + 7 + length]
    at += 7 + length
    if kind not in (1, 4):
        continue
    record, part = wandb_internal_pb2.Record.FromString(part), b""
    if record.WhichOneof("record_type") == "run":
        projects.append(record.run.project)
    if record.WhichOneof("record_type") == "history":
        values = {"/".join(one.nested_key) or one.key: one for one in record.history.item}
        rows.append({name: json.loads(one.value_json) for name, one in values.items()})
print(json.dumps({"projects": projects, "rows": rows}))
"""


def file_writer(path: Path, most_waiting: int = 1024) -> _log_writers.ToolWriter:
    return _log_writers.ToolWriter(
        "file", [sys.executable, "-c", FILE, "file", str(path)], most_waiting
    )


def let_go(path: Path) -> None:
    path.with_name(path.name + ".go").touch()


def test_all_that_waits_is_written_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "values"
    writer = file_writer(path)
    for step in range(100):
        writer.write(step, {"loss": step / 2})
    let_go(path)
    writer.close()
    lines = path.read_text().splitlines()
    assert lines == [f"{step} {step / 2}" for step in range(100)] + ["closed"]
    writer.write(100, {"loss": 0.0})  # It is over; nobody is told off.
    writer.close()


def test_a_slow_tool_loses_records_and_says_how_many(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "values"
    writer = file_writer(path, most_waiting=4)
    for step in range(20_000):  # Ten times what a pipe takes.
        writer.write(step, {"loss": 1.0})
    let_go(path)
    writer.close()
    written = len(path.read_text().splitlines()) - 1
    assert 0 < written < 20_000
    said = capfd.readouterr().err
    assert said == (
        f"corro.log: file was slower than the training: {20_000 - written} of 20000 records were"
        " left out\n"
    )


def test_a_tool_that_hangs_ends_with_the_program(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    writer = file_writer(tmp_path / "values")
    writer.write(1, {"loss": 1.0})
    writer.close(patience=0.1)
    assert capfd.readouterr().err == (
        "corro.log: file has not written the last values within 0.1 s\n"
    )


def test_forked_processes_do_not_keep_a_tool_open(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "values"
    writer = file_writer(path)
    worker = os.fork()
    if worker == 0:
        signal.pause()
    try:
        writer.write(1, {"loss": 1.0})
        let_go(path)
        writer.close()
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
    assert path.read_text() == "1 1.0\nclosed\n"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tensorbord", "CORRO_LOG_TO=tensorbord: 'tensorbord' is no tool that is known"),
        ("mlflow,mlflow:a", "CORRO_LOG_TO=mlflow,mlflow:a: 'mlflow' is there twice"),
    ],
)
def test_what_is_wrong_is_said(monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    monkeypatch.setattr(_log_writers, "_writers", None)
    monkeypatch.setenv("CORRO_LOG_TO", text)
    with pytest.raises(
        InvalidArgumentError, match="give some of tensorboard, mlflow, wandb"
    ) as error:
        _log_writers.writers()
    assert str(error.value).startswith(said)


def test_nobody_writes_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_log_writers, "_writers", None)
    monkeypatch.delenv("CORRO_LOG_TO", raising=False)
    assert _log_writers.writers() == []


def training(tmp_path: Path) -> str:
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    return str(script)


def test_a_tool_that_is_not_installed_is_one_line(launch: Launch, tmp_path: Path) -> None:
    job = launch(training(tmp_path), options=["--env", "CORRO_LOG_TO=mlflow"]).check()
    said = [line for line in job.output.splitlines() if "corro.log" in line]
    assert len(said) == 1
    assert said[0].endswith(
        "corro.log: mlflow is not installed here, and gets no values: pip install mlflow"
    )


def read(script: str, *arguments: object, cwd: Path) -> Any:
    """Returns what a program with the real tools has read."""
    command = [str(PYTHON), "-c", script, *map(str, arguments)]
    shown = subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout
    return json.loads(shown.splitlines()[-1])


LOSSES = [[step, pytest.approx(1 / step)] for step in range(1, 21)]


@needs_tools
def test_the_tools_read_what_rank_0_has_logged(launch: Launch, tmp_path: Path) -> None:
    tools = "CORRO_LOG_TO=tensorboard:runs/a,mlflow:trial,wandb:project"
    job = launch(
        training(tmp_path), python=PYTHON, options=["--env", tools], WANDB_MODE="offline"
    ).check()
    assert "corro.log" not in job.output
    values = read(READ_TENSORBOARD, "runs/a", cwd=tmp_path)
    assert values["loss"] == LOSSES
    assert values["accuracy"] == [[step, pytest.approx(step / 20)] for step in range(1, 21)]
    run = read(READ_MLFLOW, "trial", cwd=tmp_path)
    assert run["status"] == "FINISHED"
    assert run["values"]["loss"] == LOSSES
    [file] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    kept = read(READ_WANDB, file, cwd=tmp_path)
    assert kept["projects"][0] == "project"
    assert [[row["step"], row["loss"]] for row in kept["rows"]] == LOSSES


@needs_tools
def test_what_was_logged_is_there_before_the_end(launch: Launch, tmp_path: Path) -> None:
    options = ["--env", "CORRO_LOG_TO=tensorboard:runs"]
    job = launch(training(tmp_path), python=PYTHON, options=options, DIES="1")
    assert job.code != 0
    assert read(READ_TENSORBOARD, "runs", cwd=tmp_path)["loss"] == LOSSES
