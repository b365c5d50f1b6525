"""What the rows of tables are made of: cases, what their runs took, and whether a bar was reached.

Functions of their arguments alone; table_rows.py measures.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rows import Row

OP = "table"
CORRO = "corro"
BUSY = 0.1  # Cores that others use: the machine is busy then.
LAST = 0.99  # Of calls, sorted by their time: where the one is of which the time is shown.


@dataclass(frozen=True)
class Taken:
    """What a run took, in seconds: by the clock, of the peer's processor time and of its servers',
    and of the processor time of everybody else on this machine meanwhile."""

    rows: int
    wall: float
    client: float
    server: float = 0.0
    others: float = 0.0


@dataclass(frozen=True)
class Case:
    """What each peer does, with a command of table_peer.py. `bar`: of corro's figure; `ratios`: by
    peer, of corro's figure by the peer's."""

    name: str
    verb: str
    stream: str
    bar: float | None = None
    ratios: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Unit:
    """What figures are in, and whether more is better."""

    name: str
    more_is_better: bool = True

    def reached(self, figure: float, bar: float | None) -> bool:
        if bar is None:
            return True
        return figure >= bar if self.more_is_better else figure <= bar


RATE = Unit("M rows/CPU s")
BYTES = Unit("bytes/row", more_is_better=False)
READS = Unit("reads/s")
RESTORED = Unit("M rows/s, by the clock")
LATENCY = Unit("us, p99", more_is_better=False)
LONGEST = Unit("ms, the longest", more_is_better=False)
SHARE = Unit("of those without")


def rate(rows: int, seconds: float) -> float | None:
    """In million rows a second; none where no time was needed."""
    return rows / seconds / 1e6 if seconds > 0 else None


def latencies(case: Case, taken: Mapping[str, Sequence[Sequence[float]]]) -> list[Row]:
    """The rows of a case whose runs are seconds of single calls: the slowest of a hundred."""
    found = {peer: [late(run) for run in runs] for peer, runs in taken.items()}
    medians = {
        peer: statistics.median(each for run in runs for each in run) * 1e6
        for peer, runs in taken.items()
    }
    more = {peer: {"note": f"half take up to {median:.0f} us"} for peer, median in medians.items()}
    return judged(case, LATENCY, found, more)


def late(seconds: Sequence[float]) -> float:
    """The time in microseconds that one call of a hundred exceeds, at most."""
    return sorted(seconds)[math.ceil(len(seconds) * LAST) - 1] * 1e6


def cores_of_others(taken: Sequence[Taken]) -> float:
    """Cores that others used while these runs took place, on average."""
    return sum(each.others for each in taken) / sum(each.wall for each in taken)


def rates(case: Case, taken: Mapping[str, Sequence[Taken]]) -> list[Row]:
    """The rows of a case: corro's and its peers', each of which ran equally often, in turns. The
    figure is of the processor time of all processes of a peer, its servers too: what else runs on
    the machine changes the wall-clock time, and this little."""
    found = {
        peer: [each.rows / (each.client + each.server) / 1e6 for each in runs]
        for peer, runs in taken.items()
    }
    more = {
        peer: {
            "wall": rate(runs[0].rows, statistics.median(each.wall for each in runs)),
            "client_cpu": rate(runs[0].rows, statistics.median(each.client for each in runs)),
            "server_cpu": rate(runs[0].rows, statistics.median(each.server for each in runs)),
            "others": cores_of_others(runs),
        }
        for peer, runs in taken.items()
    }
    return judged(case, RATE, found, more)


def judged(
    case: Case,
    unit: Unit,
    figures: Mapping[str, Sequence[float]],
    more: Mapping[str, Mapping[str, object]] | None = None,
) -> list[Row]:
    """Rows of figures by peer and run. A peer's ratio is the median, over the runs, of corro's
    figure by the peer's, which has to reach the bar of the ratio."""
    rows = []
    for peer, found in figures.items():
        shown = columns(
            case.name, peer, min=min(found), max=max(found), **(more or {}).get(peer, {})
        )
        median = statistics.median(found)
        if peer == CORRO:
            row = Row(OP, shown, median, None, case.bar, unit.reached(median, case.bar), unit.name)
        else:
            ratio = statistics.median(a / b for a, b in zip(figures[CORRO], found, strict=True))
            bar = case.ratios.get(peer)
            row = Row(OP, shown, median, ratio, bar, unit.reached(ratio, bar), unit.name)
        rows.append(row)
    return rows


def steps(seconds: Mapping[str, Sequence[float]]) -> list[Row]:
    """Rows of what a step takes by each way of table_ahead.py. Its ratio is the median, over the
    rounds, of its time by that of sync mode with the same ranks: even ones, or uneven ones."""
    rows = []
    for way, found in seconds.items():
        uneven = ", uneven ranks" if way.endswith("uneven ranks") else ""
        sync = seconds["sync" + uneven]
        ratio = statistics.median(a / b for a, b in zip(found, sync, strict=True))
        micros = [each * 1e6 for each in found]
        shown = columns(f"step of 2 ranks, {way}", CORRO, min=min(micros), max=max(micros))
        rows.append(Row(OP, shown, statistics.median(micros), ratio, unit="us, by the clock"))
    return rows


def changes(frozen: Case, beside: Case, rounds: Sequence[Mapping[str, float]]) -> list[Row]:
    """Rows of table_changes.py: pushes while servers come and leave, and beside snapshots."""
    longest = {CORRO: [one["longest_ms"] for one in rounds]}
    usual = statistics.median(one["usual_ms"] for one in rounds)
    shares = {CORRO: [one["snapshot"] / one["alone"] for one in rounds]}
    alone = statistics.median(one["alone"] for one in rounds)
    usual_note, alone_note = f"half take up to {usual:.2f} ms", f"{alone:.0f} pushes/s without"
    return [
        *judged(frozen, LONGEST, longest, {CORRO: {"note": usual_note}}),
        *judged(beside, SHARE, shares, {CORRO: {"note": alone_note}}),
    ]


def unmeasured(case: Case, unit: Unit, peer: str, reason: str) -> Row:
    """The row of a peer that is not there: no figure, and no bar that was reached."""
    shown = columns(case.name, peer, note=reason)
    return Row(OP, shown, None, None, case.ratios.get(peer), False, unit.name)


def columns(case: str, peer: str, **known: object) -> Mapping[str, object]:
    """Those of every row of tables; what is not known is empty."""
    names = ("min", "max", "wall", "client_cpu", "server_cpu", "others", "note")
    return {"case": case, "peer": peer, **{name: known.get(name) for name in names}}
