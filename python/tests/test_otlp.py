"""The history of a job as a trace of OpenTelemetry."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, Launch

from corro import InvalidArgumentError, NotFoundError, otlp

PYTHON = HERE.parents[1] / ".venv-writers/bin/python"
BEGIN = 1_800_000_000.0
HEAD = {"corro_history": 1, "time": BEGIN, "job": "3f2a", "command": "train.py"}

# The JSON encoding of OTLP is that of protobuf, but for ids, which have hexadecimal digits.
READ = """
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

[line] = sys.stdin.read().splitlines()
traces = json.loads(line)
for span in traces["resourceSpans"][0]["scopeSpans"][0]["spans"]:
    for name in {"traceId", "spanId", "parentSpanId"} & span.keys():
        span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
data = json_format.ParseDict(traces, TracesData())
spans = data.resource_spans[0].scope_spans[0].spans
names = {span.span_id: span.name for span in spans}
print(json.dumps([[one.name, names.get(one.parent_span_id), one.status.code, len(one.trace_id),
                   len(one.span_id), one.end_time_unix_nano >= one.start_time_unix_nano]
                  for one in spans]))
"""


def event(after: float, kind: str, **fields: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("rank", "place", "host", "cause", "step"))
    return {"event": {**empty, "time": BEGIN + after, "kind": kind, "epoch": 0, **fields}}


def picture(after: float, state: str, summary: str = "") -> dict[str, Any]:
    return {"time": BEGIN + after, "state": state, "summary": summary, "ranks": []}


# Rank 1 is waited for, is lost, and the job goes on without it.
LINES = [
    HEAD,
    event(0.1, "started", place=0, host="a"),
    event(0.1, "started", place=1, host="b"),
    event(1, "joined", place=0, host="a"),
    event(2, "joined", place=1, host="b"),
    event(5, "checkpoint", place=0, step=10, cause="kept"),
    event(6, "checkpoint", place=1, step=10, cause="kept"),
    event(7, "waiting", place=1, cause="rank 0 waits for rank 1"),
    event(8, "ended", place=1, host="b", cause="killed by SIGKILL"),
    event(9, "prepare", cause="rank 1 was killed by SIGKILL"),
    event(11, "epoch", epoch=1),
    event(12, "plan", step=11, cause="one stage"),
    event(20, "ended", place=0, host="a"),
    picture(20.5, "done", "1 rank has ended"),
]


def write(folder: Path, lines: list[dict[str, Any]]) -> Path:
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def spans_of(path: Path) -> list[dict[str, Any]]:
    [resource] = json.loads(otlp.export(path))["resourceSpans"]
    return list(resource["scopeSpans"][0]["spans"])


def seconds(span: dict[str, Any]) -> tuple[float, float]:
    """From when to when, since the job's begin."""
    begin, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    return begin / 1e9 - BEGIN, end / 1e9 - BEGIN


def test_a_job_its_ranks_epochs_checkpoints_and_outages_are_spans(tmp_path: Path) -> None:
    spans = spans_of(write(tmp_path, LINES))
    assert {span["name"]: seconds(span) for span in spans} == {
        "job": (0, 20.5),
        "rank 0": pytest.approx((0.1, 20)),
        "rank 1": pytest.approx((0.1, 8)),
        "epoch 0": (0, 9),
        "epoch 1": (11, 20.5),
        "checkpoint": (5, 6),
        "opening": (0, 2),
        "wait": (7, 9),
        "change of members": (9, 11),
    }
    by_name = {span["name"]: span for span in spans}
    assert by_name["rank 1"]["status"] == {"code": 2, "message": "killed by SIGKILL"}
    assert by_name["rank 0"]["status"] == by_name["job"]["status"] == {}
    assert by_name["checkpoint"]["parentSpanId"] == by_name["epoch 0"]["spanId"]
    assert {"key": "corro.ranks", "value": {"intValue": "2"}} in by_name["checkpoint"]["attributes"]
    assert [one["name"] for one in by_name["job"]["events"]] == ["waiting", "prepare", "plan"]
    assert len({span["spanId"] for span in spans}) == len(spans)


def test_what_goes_on_ends_where_the_history_does(tmp_path: Path) -> None:
    spans = spans_of(write(tmp_path, [*LINES[:8], picture(7.5, "waiting")]))
    for span in spans:
        if span["name"] in ("job", "rank 0", "rank 1", "epoch 0", "wait"):
            assert seconds(span)[1] == 7.5, span["name"]


def test_a_line_that_is_cut_off_ends_the_history(tmp_path: Path) -> None:
    write(tmp_path, LINES[:4])
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"event":{"time":18000')
    assert seconds(spans_of(tmp_path)[0])[1] == 1


@pytest.mark.parametrize(
    ("head", "said"),
    [({"time": BEGIN}, "no history of a job"), ({**HEAD, "corro_history": 9}, "of version 9")],
)
def test_another_file_is_refused(tmp_path: Path, head: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        otlp.export(write(tmp_path, [head]))


def test_no_file_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"history\.jsonl: .*give the folder of a job's logs"):
        otlp.export(tmp_path)


FAILS = """
import sys
import corro

corro.init()
if corro.rank() == 1:
    sys.exit("out of milk")
corro.barrier()
"""


@pytest.mark.skipif(not PYTHON.exists(), reason="make test-writers makes .venv-writers")
def test_opentelemetry_reads_a_job_that_has_failed(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    job = launch(str(script), options=["--log-dir", "logs"])
    assert job.code != 0
    command = [str(PYTHON), "-m", "corro.otlp", str(tmp_path / "logs")]
    line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    read = subprocess.run(
        [str(PYTHON), "-c", READ], input=line, check=True, capture_output=True, text=True
    )
    spans = json.loads(read.stdout)
    assert {one[0]: one[1] for one in spans} == {
        "job": None,
        "rank 0": "job",
        "rank 1": "job",
        "epoch 0": "job",
        "opening": "job",
    }
    failed = {name for name, _, code, *_ in spans if code == 2}
    assert {"job", "rank 1"} <= failed
    assert all(one[3:] == [16, 8, True] for one in spans)
