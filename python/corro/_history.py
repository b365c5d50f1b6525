"""The history of a job, for whoever makes something else of it: history.jsonl.

Its format is in docs/dashboard.md#history. What is cut off or damaged ends it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corro.errors import InvalidArgumentError, NotFoundError

_FILE = "history.jsonl"
_VERSION = 1

Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class History:
    """What the file has. Times are in seconds since 1970."""

    job: str
    command: str
    begin: float
    end: float
    events: list[Event]
    last: Event  # The last picture.
    step: int  # The newest one of any rank; 0: none has told one.


def read(path: Path) -> History:
    """Reads the history in this folder, or in this file; blocks.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: it is no history, or of another version.
    """
    file = path / _FILE if path.is_dir() else path
    try:
        text = file.read_text(errors="replace")
    except OSError as error:
        raise NotFoundError(
            f"{file}: {error.strerror}; give the folder of a job's logs, such as"
            " corro-runs/20260101-120000-train"
        ) from None
    lines = list(_lines(text))
    version = lines[0].get("corro_history") if lines else None
    if version != _VERSION:
        what = "no history of a job" if version is None else f"of version {version}"
        raise InvalidArgumentError(f"{file}: it is {what}; this corro reads version {_VERSION}")
    begin = lines[0].get("time")
    if not isinstance(begin, float | int):
        raise InvalidArgumentError(f"{file}: its first line is damaged")
    events = [event for line in lines if (event := _event_of(line)) is not None]
    pictures = [line for line in lines if "state" in line]
    times = [
        line["time"] for line in (*lines, *events) if isinstance(line.get("time"), float | int)
    ]
    return History(
        job=str(lines[0].get("job")),
        command=str(lines[0].get("command")),
        begin=begin,
        end=max(times),
        events=events,
        last=pictures[-1] if pictures else {},
        step=max((step for picture in pictures for step in _steps_of(picture)), default=0),
    )


def _lines(text: str) -> Iterator[Any]:
    """Yields objects up to a line that is cut off or damaged."""
    for line in text.split("\n"):
        try:
            found = json.loads(line)
        except ValueError:
            return
        if not isinstance(found, dict):
            return
        yield found


def _steps_of(picture: Event) -> Iterator[int]:
    rows = picture.get("ranks")
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            yield row["step"]


def _event_of(line: Event) -> Event | None:
    """Returns the event of a line with all fields that are read here; None if there is none."""
    told = line.get("event")
    if not isinstance(told, dict) or not isinstance(told.get("time"), float | int):
        return None
    names = ("time", "kind", "epoch", "place", "host", "step", "cause")
    return {name: told.get(name) for name in names}
