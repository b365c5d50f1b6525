"""One row of the results, and the tables in which rows are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Columns = Mapping[str, object]


@dataclass(frozen=True)
class Row:
    """A figure and its bar. Rows of one table have the same `columns`: what was measured, and what
    else is shown of it; they stand between `op` and the median, which is in microseconds or has a
    `unit`."""

    op: str
    columns: Columns
    median: float | None
    ratio: float | None = None
    bar: float | None = None
    ok: bool = True
    unit: str = "us"

    def cells(self) -> dict[str, object]:
        median: Columns = {"median_us": self.median}
        if self.unit != "us":
            median = {"median": self.median, "unit": self.unit}
        judged = {key: getattr(self, key) for key in ("ratio", "bar", "ok")}
        return {"op": self.op, **self.columns, **median, **judged}


def timed(
    op: str,
    columns: Columns,
    median_us: float,
    bar: float | None = None,
    ratio: float | None = None,
) -> Row:
    """A row whose bar is in microseconds; its ratio is only shown."""
    return Row(op, columns, median_us, ratio, bar, bar is None or median_us <= bar)


def compared(
    op: str, columns: Columns, median_us: float, ratio: float, bar: float | None = None
) -> Row:
    """A row whose ratio must not exceed its bar; without one the ratio is only shown."""
    return Row(op, columns, median_us, ratio, bar, bar is None or ratio <= bar)


def missing(op: str, columns: Columns) -> Row:
    """A row that could not be measured: no bar was reached; `note` in its columns says why."""
    return Row(op, columns, None, ok=False)


def tables(rows: Sequence[Row]) -> str:
    """A table for each kind of row."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        kinds.setdefault(tuple(row.columns), []).append(row)
    return "\n".join(map(_table, kinds.values()))


def _table(rows: Sequence[Row]) -> str:
    head = list(rows[0].cells())
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [_show(key, value) for key, value in row.cells().items()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _show(key: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 or key == "ratio" else f"{value:.0f}"
    return str(value)
