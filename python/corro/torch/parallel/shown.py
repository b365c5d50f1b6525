"""What people see of a plan on the dashboard: JSON of a few kilobytes (docs/dashboard.md)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from corro import _context, _native
from corro.planned import Planned
from corro.torch.parallel.report import Line

_MOST_BYTES = 4088  # corro_report_decisions().
_SHORT = 250  # Characters, of four bytes each at most.
_PAUSE = 1.0  # Seconds between two reports of one plan.
_last = 0.0


def show(planned: Planned, text: str, ranks: Sequence[int], lines: Sequence[Line] = ()) -> None:
    """Tells people of the plan; rank 0 does. `text`: in a line. `lines`: as measured, if it was.

    `ranks`: of the world, by the plan's own.
    """
    global _last
    now = time.monotonic()
    if lines and now < _last + _PAUSE:
        return
    _last = now
    document = described(planned, text, ranks, lines)
    _context.report(lambda: _native.report_decisions(document))


def described(planned: Planned, text: str, ranks: Sequence[int], lines: Sequence[Line] = ()) -> str:
    """Returns the JSON; without stages, and with less text, where those make it too long."""
    shape = planned.decisions.shape
    document: dict[str, Any] = {
        "text": text,
        "why": planned.why,
        "limiting": planned.limiting,
        "step_seconds": planned.step,
        "schedule": shape.schedule,
        "micro_batches": shape.micro_batches,
        "chunks": shape.chunks,
        "terms": [[each.name, each.planned, each.measured] for each in lines[:-1]],
        "measured_seconds": lines[-1].measured if lines else None,
        "stages": [_stage(planned, number, ranks) for number in range(len(planned.memory))],
    }
    made = _compact(document)
    if len(made.encode()) > _MOST_BYTES:
        made = _compact(document | {"stages": []})
    if len(made.encode()) > _MOST_BYTES:
        short = {name: document[name][:_SHORT] for name in ("text", "why", "limiting")}
        made = _compact(document | {"stages": []} | short)
    return made


def _compact(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _stage(planned: Planned, number: int, ranks: Sequence[int]) -> dict[str, Any]:
    stage = planned.decisions.stages[number]
    seconds = planned.document["decisions"]["stages"][number].get("seconds", {})
    here = ranks[stage.first_device : stage.first_device + stage.devices]
    return {
        "layers": [stage.first_layer, stage.end_layer],
        "ranks": spans(here),
        "memory_bytes": round(stage.memory.total),
        "limit_bytes": round(stage.memory_limit),
        "forward_seconds": seconds.get("forward", 0),
        "backward_seconds": seconds.get("backward", 0) + seconds.get("recompute", 0),
    }


def spans(numbers: Iterable[int]) -> str:
    """Returns the numbers as "0-3,8"; each once, ascending."""
    found = []
    for _, run in groupby(enumerate(sorted(set(numbers))), lambda each: each[1] - each[0]):
        first, *rest = (number for _, number in run)
        found.append(f"{first}-{rest[-1]}" if rest else str(first))
    return ",".join(found)
