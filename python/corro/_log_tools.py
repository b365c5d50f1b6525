"""Runs of TensorBoard, MLflow and Weights & Biases, in a process that writes to one of them.

    python -c "from corro._log_tools import main; main()" tensorboard runs/a

reads a record a line from its standard input, `[seconds since 1970, step, {name: value}]`, until
that ends or a line is `null`: processes that the program has forked may keep the other end open.
What goes wrong is one line on stderr, and status 1. corro._log_writers starts it.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from logging import WARNING, getLogger
from time import strftime
from typing import Any, NamedTuple, Protocol


class Record(NamedTuple):
    """What was logged at once."""

    time: float  # Seconds since 1970.
    step: int
    values: dict[str, float]


class Run(Protocol):
    """A run of a tool. Any error is the end of it."""

    def __init__(self, where: str) -> None:
        """Opens it; `where` is what follows the tool's name in CORRO_LOG_TO, or empty."""

    def write(self, records: Sequence[Record]) -> None:
        """Writes records, and hands them to the disk or the tool's server."""

    def close(self) -> None:
        """Ends the run well."""


class TensorBoard:
    """Event files in a folder."""

    def __init__(self, where: str) -> None:
        files: Any = import_module("tensorboard.summary.writer.event_file_writer")
        self._event: Any = import_module("tensorboard.compat.proto.event_pb2").Event
        self._summary: Any = import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._file: Any = files.EventFileWriter(where or os.path.join("runs", _run_name()))

    def write(self, records: Sequence[Record]) -> None:
        for at, step, values in records:
            scalars = [self._summary.Value(tag=n, simple_value=v) for n, v in values.items()]
            summary = self._summary(value=scalars)
            self._file.add_event(self._event(wall_time=at, step=step, summary=summary))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class MLflow:
    """A run of an experiment, where MLflow's own variables say: MLFLOW_TRACKING_URI."""

    _MOST_METRICS = 1000  # In one call, says MLflow's interface.

    def __init__(self, where: str) -> None:
        client: Any = import_module("mlflow").MlflowClient()
        getLogger("mlflow").setLevel(WARNING)  # Else it says how it makes its database.
        self._metric: Any = import_module("mlflow.entities").Metric
        name = where or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"
        found = client.get_experiment_by_name(name)
        number = found.experiment_id if found else client.create_experiment(name)
        self._client = client
        self._run = self._find(number) or client.create_run(
            number, run_name=_run_name(), tags={"corro.job": _run_name()}
        )

    def _find(self, experiment: str) -> Any:
        """Returns the run of this job that another rank 0, which is gone, has begun."""
        found = self._client.search_runs([experiment], f"tags.`corro.job` = '{_run_name()}'")
        return found[0] if found else None

    def write(self, records: Sequence[Record]) -> None:
        metrics = [
            self._metric(name, value, int(at * 1000), step)
            for at, step, values in records
            for name, value in values.items()
        ]
        for first in range(0, len(metrics), self._MOST_METRICS):
            part = metrics[first : first + self._MOST_METRICS]
            self._client.log_batch(self._run.info.run_id, metrics=part)

    def close(self) -> None:
        self._client.set_terminated(self._run.info.run_id)


class WandB:
    """A run of a project, where W&B's own variables say: WANDB_MODE, WANDB_DIR, WANDB_ENTITY.

    Values are drawn over `step`, since W&B's own step only grows: an elastic job that goes back to
    a checkpoint logs steps once more.
    """

    def __init__(self, where: str) -> None:
        wandb: Any = import_module("wandb")
        # Runs go on at W&B's server alone.
        online = os.environ.get("WANDB_MODE", "online") == "online"
        self._run: Any = wandb.init(
            project=where or None,
            name=_run_name(),
            id=_run_name() if online else None,
            resume="allow" if online else None,
            settings=wandb.Settings(silent=True),
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, records: Sequence[Record]) -> None:
        for at, step, values in records:
            self._run.log({**values, "step": step, "_timestamp": at})

    def close(self) -> None:
        self._run.finish()


TOOLS: dict[str, type[Run]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}
"""By the name of their package."""

END = b"null\n"
"""What ends the records."""

_STARTED = strftime("%Y%m%d-%H%M%S")


def _run_name() -> str:
    """Returns the job's name; without a launcher one of the time."""
    return os.environ.get("CORRO_JOB_ID") or _STARTED


def _records(source: int) -> Iterator[list[Record]]:
    """Yields what has come, until the end; a line that is cut off is left out."""
    rest = b""
    while more := os.read(source, 1 << 16):
        rest += more
        while select.select([source], [], [], 0)[0] and (more := os.read(source, 1 << 16)):
            rest += more
        *lines, rest = rest.split(b"\n")
        told = [json.loads(line) for line in lines]
        yield [Record(*record) for record in told if record is not None]
        if None in told:
            return


def main() -> None:
    """Writes all that comes on standard input to the tool that the arguments name."""
    name, where = sys.argv[1:]
    os.dup2(2, 1)  # What a tool prints is nothing that the program has printed.
    try:
        run = TOOLS[name](where)
        for records in _records(0):
            run.write(records)
        run.close()
    except Exception as error:
        print(f"corro.log: {_told(name, error)}", file=sys.stderr, flush=True)
        sys.exit(1)


def _told(name: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == name:
        return f"{name} is not installed here, and gets no values: pip install {name}"
    first = str(error).strip().partition("\n")[0]
    return f"{name} gets no more values: {type(error).__name__}: {first}"
