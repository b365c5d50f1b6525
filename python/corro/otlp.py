"""The history of a job as a trace of OpenTelemetry: `python -m corro.otlp FOLDER -o FILE`.

    from corro import otlp

    line = otlp.export("corro-runs/20260101-120000-train")

The file has the format of OpenTelemetry's file exporter: a line of JSON, a TracesData in the JSON
encoding of OTLP. Its spans:

    job                             from the job's begin to its end, or to what is known of it
        rank N                      each process of a place, from its start to its end
        epoch N                     in which the members are the same
            checkpoint              from the first rank that has kept a step to the last one
        opening, change of members, wait
                                    time in which no step is done

What else has happened is an event of the job's span. The ids are made of the job's name and its
begin, so the same history makes the same spans.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from corro._history import Event, History, read
from corro.errors import CorroError

_INTERNAL = 1  # SpanKind
_ERROR = 2  # StatusCode
_ENDS = ("stopped", "failure")


@dataclass(kw_only=True)
class Span:
    """Something that took time. Times are in seconds since 1970."""

    name: str
    begin: float
    end: float | None = None  # None: it was going on when the history ended.
    parent: Span | None = None
    error: str | None = None  # Why it has failed.
    attributes: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)


def export(path: str | Path) -> str:
    """Returns the line of JSON of a job's history; blocks while it reads.

    Args:
        path: the folder of the job's logs, or its history.jsonl. The job may run still.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: it is no history, or of another version.
    """
    history = read(Path(path))
    return json.dumps(_traces(history, _spans_of(history))) + "\n"


# -- spans ----------------------------------------------------------------------------------------


def _spans_of(history: History) -> list[Span]:
    """Returns the job's span, and behind it all others."""
    state = history.last.get("state", "running")
    job = Span(name="job", begin=history.begin, end=history.end)
    job.attributes = {"corro.command": history.command, "corro.state": state}
    if state == "failed":
        job.error = str(history.last.get("summary"))
    epochs = list(_epochs(history, job))
    spans = [
        *_members(history.events, job),
        *epochs,
        *_checkpoints(history.events, epochs),
        *_outages(history, job),
    ]
    apart = {"started", "joined", "ended", "epoch", "checkpoint"}
    job.events = [event for event in history.events if event["kind"] not in apart]
    for span in spans:
        span.end = max(span.begin, history.end if span.end is None else span.end)
    return [job, *spans]


def _members(events: Iterable[Event], job: Span) -> Iterator[Span]:
    """Yields a span for each process that a place had."""
    running: dict[int, Span] = {}
    for event in events:
        kind, place = event["kind"], event["place"]
        if kind == "started" and place is not None:
            span = Span(name=f"rank {place}", begin=event["time"], parent=job)
            span.attributes = {"corro.place": place, "host.name": event["host"]}
            running[place] = span
            yield span
        elif kind == "joined" and place in running:
            running[place].events.append(event)
        elif kind in ("ended", "fenced") and place in running:
            _end(running.pop(place), event)
        elif kind == "lost":
            gone = [p for p, s in running.items() if s.attributes["host.name"] == event["host"]]
            for one in gone if place is None else {place} & running.keys():
                _end(running.pop(one), event)


def _end(span: Span, event: Event) -> None:
    span.end = event["time"]
    lost = f"{event['kind']} with its host" if event["kind"] == "lost" else None
    span.error = event["cause"] or lost


def _epochs(history: History, job: Span) -> Iterator[Span]:
    """Yields spans of equal members: each ends where the next one is prepared."""
    epoch = Span(name="epoch 0", begin=history.begin, parent=job, attributes={"corro.epoch": 0})
    yield epoch
    why = None
    for event in history.events:
        if event["kind"] == "prepare" and epoch.end is None:
            epoch.end, why = event["time"], event["cause"]
        elif event["kind"] == "epoch" and event["epoch"] > 0:
            epoch.end = event["time"] if epoch.end is None else epoch.end
            number = event["epoch"]
            epoch = Span(name=f"epoch {number}", begin=event["time"], parent=job)
            epoch.attributes = {"corro.epoch": number, "corro.cause": why}
            yield epoch


def _checkpoints(events: Iterable[Event], epochs: list[Span]) -> Iterator[Span]:
    last: Span | None = None
    for event in events:
        if event["kind"] != "checkpoint":
            continue
        if last is None or last.attributes["corro.step"] != event["step"]:
            begun = [epoch for epoch in epochs if epoch.begin <= event["time"]]
            last = Span(name="checkpoint", begin=event["time"], parent=(begun or epochs)[-1])
            last.attributes = {
                "corro.step": event["step"],
                "corro.folder": event["cause"],
                "corro.ranks": 0,
            }
            yield last
        last.end = event["time"]
        last.attributes["corro.ranks"] += 1


def _outages(history: History, job: Span) -> Iterator[Span]:
    """Yields spans in which no step is done, as the page's lost time."""
    yield Span(name="opening", begin=history.begin, end=_end_of_opening(history), parent=job)
    going: dict[str, Span] = {}
    for event in history.events:
        kind, cause, time = event["kind"], event["cause"], event["time"]
        ended = {"waiting": ["wait"] if cause is None else [], "prepare": ["wait"]}.get(kind, [])
        ended = ["change of members"] if kind == "epoch" else ended
        for name in going if kind in _ENDS else ended:
            if name in going:
                going[name].end = time
        going = {name: span for name, span in going.items() if span.end is None}
        begun = {"prepare": "change of members"}.get(kind)
        begun = "wait" if kind == "waiting" and cause is not None else begun
        if begun is not None and begun not in going:
            going[begun] = Span(name=begun, begin=time, parent=job)
            going[begun].attributes = {"corro.cause": cause, "corro.awaited_place": event["place"]}
            yield going[begun]


def _end_of_opening(history: History) -> float:
    """Returns when all ranks that were started at the beginning were in the job."""
    out: set[int] = set()
    for event in history.events:
        if event["kind"] in ("prepare", *_ENDS):
            return float(event["time"])
        if event["kind"] == "started":
            out.add(event["place"])
        elif event["kind"] in ("joined", "ended"):
            out.discard(event["place"])
            if not out:
                return float(event["time"])
    return history.end


# -- OTLP's JSON ----------------------------------------------------------------------------------


def _traces(history: History, spans: list[Span]) -> dict[str, Any]:
    trace = _id(f"{history.job} {history.begin!r}", 16)
    ids = {id(span): _id(f"{trace} {number}", 8) for number, span in enumerate(spans)}
    resource = {"service.name": "corro", "corro.job": history.job}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [
                    {
                        "scope": {"name": "corro"},
                        "spans": [_span(trace, ids, span) for span in spans],
                    }
                ],
            }
        ]
    }


def _id(text: str, size: int) -> str:
    """Returns so many bytes in hexadecimal digits, which OTLP has instead of Base64."""
    return blake2b(text.encode(), digest_size=size).hexdigest()


def _span(trace: str, ids: dict[int, str], span: Span) -> dict[str, Any]:
    told: dict[str, Any] = {
        "traceId": trace,
        "spanId": ids[id(span)],
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": _nanoseconds(span.begin),
        "endTimeUnixNano": _nanoseconds(span.end or span.begin),
        "attributes": _attributes(span.attributes),
        "events": [_event(event) for event in span.events],
        "status": {} if span.error is None else {"code": _ERROR, "message": span.error},
    }
    if span.parent is not None:
        told["parentSpanId"] = ids[id(span.parent)]
    return told


def _event(event: Event) -> dict[str, Any]:
    names = {
        "place": "corro.place",
        "host": "host.name",
        "step": "corro.step",
        "cause": "corro.cause",
    }
    return {
        "timeUnixNano": _nanoseconds(event["time"]),
        "name": event["kind"],
        "attributes": _attributes({to: event[name] for name, to in names.items()}),
    }


def _nanoseconds(seconds: float) -> str:
    return str(round(seconds * 1e6) * 1000)


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns them without those that there are not."""
    return [
        {
            "key": key,
            "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
        }
        for key, value in values.items()
        if value is not None
    ]


def main() -> int:
    """Carries out `python -m corro.otlp`; returns its status."""
    parser = argparse.ArgumentParser(
        prog="python -m corro.otlp",
        description="Writes the history of a job as a trace of OpenTelemetry (OTLP, JSON lines).",
    )
    parser.add_argument("path", help="the folder of the job's logs, or its history.jsonl")
    parser.add_argument("-o", "--output", default="-", help="where; default: standard output")
    arguments = parser.parse_args()
    try:
        line = export(arguments.path)
        if arguments.output == "-":
            sys.stdout.write(line)
        else:
            Path(arguments.output).write_text(line)
    except CorroError as error:
        print(f"corro.otlp: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"corro.otlp: {arguments.output}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
