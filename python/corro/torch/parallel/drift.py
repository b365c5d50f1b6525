"""Whether steps take what was planned; and another plan, where they take more.

Every LOOK steps the ranks tell each other what theirs have taken. If a step is longer than planned
by more than LIMIT, the machines are not what the planner took them for: their speeds are corrected
by what was measured, and another plan is made. If it promises to be faster than steps are now, by
GAIN, training moves to it. Else the plan stays, and what was measured is what it promises.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import corro
from corro import _context, _native
from corro._objects import allgather_object
from corro.errors import InvalidArgumentError, ResourceExhaustedError
from corro.planned import Planned
from corro.torch.parallel import moving, shown
from corro.torch.parallel.capability import RankReport
from corro.torch.parallel.clock import COMPUTE, SYNC
from corro.torch.parallel.links import Link
from corro.torch.parallel.replanning import Tried, decided, seconds_of_rank
from corro.torch.parallel.report import Line, seconds_of
from corro.torch.parallel.resources import NOISE, cluster_of
from corro.torch.parallel.tensor.choice import Choices

if TYPE_CHECKING:
    from corro.torch.parallel.trainer import Trainer

LOOK = 20
"""Steps between two looks."""
LIMIT = 0.2
"""By which fraction a step may be longer than planned, or than it was when that was looked into."""
GAIN = 0.05
"""By which fraction of a step another plan has to be better."""
PAUSE = 10.0
"""Seconds between two events that say what steps take."""
_SLOWER = "-slower"
_MOST = 100.0  # A speed is corrected by this factor at most.

Times = dict[str, float]
"""Means of a rank: seconds of a step by terms, and of the whole "step"."""


def look(trainer: Trainer) -> None:
    """Compares the last steps with the plan; all ranks call it after the same step. Blocks."""
    ranks: list[Times] = allgather_object(trainer._measured.window(), group=trainer._group)
    lines = seconds_of(trainer.plan, ranks)
    _show(trainer, lines)
    step, planned = lines[-1].measured, lines[-1].planned
    planning = trainer._planning
    if planning.may_change and step > (1 + LIMIT) * max(planned, planning.accepted):
        plan_again(trainer, ranks)


def plan_again(trainer: Trainer, ranks: Sequence[Times]) -> None:
    """Corrects the speeds of the ranks by what their steps take, and plans. Blocks.

    `ranks`: of each rank of the trainer's group.
    """
    planning, group, before = trainer._planning, trainer._group, trainer.plan
    lines = seconds_of(before, ranks)
    step, promised = lines[-1].measured, lines[-1].planned
    computing = [each[COMPUTE] for each in ranks]
    present = Tried(as_measured(before, lines), trainer._choices, computing)
    planning.tried[decided(before)] = present
    said = f"a step takes {_ms(step)}, {step / promised - 1:.0%} more than planned: "
    plans = {key: (each.plan, each.choices) for key, each in planning.tried.items()}
    found, choices = _found(trainer, ranks)
    # What was measured of a plan counts, not what is promised of it.
    plans.setdefault(decided(found), (found, choices))
    best, choices = min(plans.values(), key=_step)
    is_better = best.step < (1 - GAIN) * step
    if is_better and planning.has_room(best, group):
        said += f"another plan takes {_ms(best.step)}: {shape_text(before)} -> {shape_text(best)}"
        offer = moving.Offer(moving.boxes_of(trainer))
        moving.move(trainer, best, choices, group, offer.read())
        planning.accepted = 0.0
    else:
        why = "a disk has no room for another one"
        if not is_better:
            why = f"no other one takes less than {1 - GAIN:.0%} of that"
        said += f"the plan stays, since {why}"
        trainer.plan = present.plan
        planning.accepted = step
    trainer._reason = f"after step {trainer.steps}: {said}"
    _report(trainer, said)
    if group.rank() == 0:
        print(f"corro: step {trainer.steps}: {said}", file=sys.stderr, flush=True)


def _found(trainer: Trainer, ranks: Sequence[Times]) -> tuple[Planned, Choices]:
    """Returns the best plan for the corrected speeds; the present one where none fits. Blocks."""
    planning, group, recording = trainer._planning, trainer._group, trainer._recording
    try:
        like, reports = trainer.plan, planning.known_reports(group)
        computing = planning.computing(like)
        if reports is None:  # A cluster was given, and it is not this one.
            reports = with_memory(planning.measure(group), trainer)
            like = planning.planned_like(like, recording, group, cluster_of(reports))
            computing = [seconds_of_rank(like, rank) for rank in range(group.size())]
        reports, slower = corrected(reports, computing, like.decisions.terms.sync, ranks)
        planning.correct(reports, group, slower)
        return planning.best(recording, group, cluster_of(reports))
    except (InvalidArgumentError, ResourceExhaustedError):  # On all ranks alike.
        return trainer.plan, trainer._choices


def with_memory(reports: Sequence[RankReport], trainer: Trainer) -> list[RankReport]:
    """Returns the reports with the memory that training has now, too. Blocks."""
    own = sum(each for name, each in trainer._kept().items() if name != "offloaded")
    kept = allgather_object(int(own), group=trainer._group)
    return [
        replace(report, memory=tuple((limit, left + own) for limit, left in report.memory))
        for report, own in zip(reports, kept, strict=True)
    ]


def corrected(
    reports: Sequence[RankReport],
    computing: Sequence[float],
    sync: float,
    ranks: Sequence[Times],
) -> tuple[list[RankReport], float]:
    """Returns what the ranks are beside each other, and by what all are slower than planned. Pure.

    What is common to all is also what operators and collectives take to begin, which no speed says.

    Args:
        computing: what each rank was planned to compute in a step, in seconds.
        sync: what was planned for sums of gradients.
        ranks: what was measured.
    """
    factors = [_factor(each[COMPUTE], own) for each, own in zip(ranks, computing, strict=True)]
    common = min(factors)
    # Who comes last to an allreduce does not wait in it for others.
    links = _factor(min(each[SYNC] for each in ranks), sync) / common if sync else 1.0
    found = [
        replace(
            report,
            device=_named(report.device, factor / common),
            known="",
            peak={dtype: flops * common / factor for dtype, flops in report.peak.items()},
            memory_bandwidth=report.memory_bandwidth * common / factor,
            link=_slower(report.link, links),
            network=_slower(report.network, links),
        )
        for report, factor in zip(reports, factors, strict=True)
    ]
    return found, common


def as_measured(planned: Planned, lines: Sequence[Line]) -> Planned:
    """Returns the plan with what was measured as its prediction."""
    compute, weights, waiting, sync, update, step = (each.measured for each in lines)
    terms = replace(
        planned.decisions.terms,
        **{"compute": compute, "recompute": 0.0, "weights": weights, "hops": 0.0},
        **{"bubble": waiting, "sync": sync, "update": update},
    )
    return replace(planned, decisions=replace(planned.decisions, step=step, terms=terms))


def _named(device: str, slower: float) -> str:
    """Returns a name that only devices of a host have that are as much slower than others."""
    kind = round(math.log(slower, NOISE))
    return device.partition(_SLOWER)[0] + (f"{_SLOWER}{kind}" if kind else "")


def _step(plan: tuple[Planned, Choices]) -> float:
    return plan[0].step


def _factor(measured: float, planned: float) -> float:
    if not planned or not measured:
        return 1.0
    return min(_MOST, max(1 / _MOST, measured / planned))


def _slower(link: Link | None, factor: float) -> Link | None:
    return None if link is None else Link(link.bandwidth / factor, link.latency)


def _summary(lines: Sequence[Line]) -> str:
    parts = [f"{each.name} {_ms(each.measured)} of {_ms(each.planned)}" for each in lines[:-1]]
    whole = lines[-1]
    return f"a step takes {_ms(whole.measured)} of {_ms(whole.planned)} planned: " + ", ".join(
        parts
    )


def _report(trainer: Trainer, text: str) -> None:
    """For `corro run --events`."""
    if trainer._group.rank() == 0:
        _context.report(lambda: _native.report_training(trainer.steps, text))


def _show(trainer: Trainer, lines: Sequence[Line]) -> None:
    """For the dashboard; and, from time to time, for `corro run --events`."""
    if trainer._group.rank() != 0:
        return
    planned = trainer.plan
    if trainer._group.size() == corro.size():
        shown.show(planned, shape_text(planned), trainer._loaded.group.ranks, lines)
    now = time.monotonic()
    if now >= trainer._planning.said_at + PAUSE:
        trainer._planning.said_at = now
        _report(trainer, _summary(lines))


def shape_text(planned: Planned) -> str:
    """Returns what was decided in a line."""
    shape = planned.decisions.shape
    layers = "+".join(str(each.end_layer - each.first_layer) for each in planned.decisions.stages)
    tensor = f"tensor {shape.tensor}, " if shape.tensor > 1 else ""
    away = f", {shape.offload} offloaded" if shape.offload != "off" else ""
    return (
        f"{tensor}data {shape.data}, pipeline {shape.pipeline} ({layers} layers), "
        f"ZeRO {shape.zero}, micro-batches of {shape.micro_batch}{away}"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
