"""How a job went, as Kubeflow Pipelines shows it beside a step: metrics, and a page.

    from corro import kubeflow

    report = kubeflow.report(folder)  # Of `corro run --log-dir`.
    for name, value in report.metrics.items():
        metrics.log_metric(name, value)  # metrics: dsl.Output[dsl.Metrics]
    Path(page.path).write_text(report.html)  # page: dsl.Output[dsl.HTML]

examples/kubernetes/kfp_training.py has a component that does so. This module needs no kfp.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any

from corro._history import Event, History, read

_MOST_EVENTS = 200  # On the page, the newest ones.
_STYLE = "body{font:15px sans-serif}td,th{padding:2px 12px;text-align:left}"


@dataclass(frozen=True, kw_only=True)
class Report:
    """How a job went, or goes."""

    metrics: dict[str, float]
    html: str


def report(path: str | Path) -> Report:
    """Reads the history of a job, which may run still; blocks.

    Args:
        path: the folder of the job's logs, or its history.jsonl.

    Returns:
        Metrics `seconds` (of the job), `ranks` (processes started), `failed_ranks`, `epochs`,
        `checkpoints` (steps that were kept), `step` (the newest one), `steps_per_second` (over
        the whole time); and an HTML page of at most some 100 KB: the job's sentence, these, and
        the last 200 events.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: it is no history, or of another version.
    """
    history = read(Path(path))
    metrics = _metrics_of(history)
    return Report(metrics=metrics, html=_page_of(history, metrics))


def _metrics_of(history: History) -> dict[str, float]:
    seconds = max(history.end - history.begin, 0.0)
    kinds = [event["kind"] for event in history.events]
    kept = {event["step"] for event in history.events if event["kind"] == "checkpoint"}
    return {
        "seconds": seconds,
        "ranks": kinds.count("started"),
        "failed_ranks": _number(history.last.get("lost")),
        "epochs": 1 + _number(history.last.get("epoch")),
        "checkpoints": len(kept),
        "step": history.step,
        "steps_per_second": history.step / seconds if seconds > 0 else 0.0,
    }


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _page_of(history: History, metrics: dict[str, float]) -> str:
    """Returns HTML in which text of others is text."""
    summary = history.last.get("summary") or "The job begins."
    state = history.last.get("state") or "opening"
    numbers = ((name.replace("_", " "), f"{value:g}") for name, value in metrics.items())
    return "\n".join(
        [
            f'<!doctype html><meta charset="utf-8"><title>corro</title><style>{_STYLE}</style>',
            f"<h1>{escape(str(state))}</h1><p>{escape(str(summary))}</p>",
            f"<p><code>{escape(history.command)}</code></p>",
            _table(("", ""), numbers),
            "<h2>Events, the newest first</h2>",
            _table(
                ("time (UTC)", "event", "rank", "host", "step", "cause"),
                map(_row_of, reversed(history.events[-_MOST_EVENTS:])),
            ),
        ]
    )


def _row_of(event: Event) -> tuple[Any, ...]:
    at = datetime.fromtimestamp(event["time"], timezone.utc)
    told = (event[name] for name in ("kind", "place", "host", "step", "cause"))
    return (f"{at:%Y-%m-%d %H:%M:%S}", *told)


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{escape(one)}</th>" for one in head) + "</tr>"]
    for row in rows:
        cells = ("" if cell is None else escape(str(cell)[:500]) for cell in row)
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "\n".join([*lines, "</table>"])
