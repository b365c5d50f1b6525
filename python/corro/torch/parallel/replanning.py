"""What a user has asked a plan for, so that another one can be made when the world has changed.

A rank measures itself once, and keeps what it has measured: where all ranks of a new epoch know
what they are, nothing is measured again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from corro import _context
from corro._context import Group, new_group
from corro._objects import allgather_object, broadcast_object
from corro.errors import CorroError, InvalidArgumentError, ResourceExhaustedError
from corro.planned import Planned, Terms
from corro.torch.parallel.offload import LEVELS, Scratch, Storage, space_of
from corro.torch.parallel.planning import (
    Choosing,
    Recording,
    agreed_plan,
    raise_first,
    recomputed_of,
)
from corro.torch.parallel.resources import (
    calibration_of,
    checked_resources,
    cluster_of,
    reports_of,
)
from corro.torch.parallel.seats import Seats

if TYPE_CHECKING:
    import torch

    from corro.torch.parallel.capability import RankReport
    from corro.torch.parallel.tensor.choice import Choices

_OF_A_WORLD = ("tensor", "context", "expert", "data", "pipeline", "chunks", "micro_batch")
"""Pins that another number of ranks may not allow."""
_DEGREES = ("tensor", "data", "pipeline", "micro_batch", "zero", "offload")
_COPIES = 3  # What an elastic job puts on a disk, over what is offloaded: two commits' copies, too.
_MOVE = 2  # The same of a move, beside what is there: what is received, and the next plan's files.


@dataclass(frozen=True, slots=True)
class Wishes:
    """Arguments of parallelize() that a plan depends on."""

    resources: object
    objective: str
    pins: Mapping[str, object]
    memory_limit: float | str | None
    strategies: tuple[str, ...]
    main_weights: bool
    offload: str | None
    """A folder."""

    def pins_in_turn(self) -> list[Mapping[str, object]]:
        """Returns what is pinned where the number of ranks has changed: all, less, nothing."""
        less = {key: value for key, value in self.pins.items() if key not in _OF_A_WORLD}
        turns: list[Mapping[str, object]] = [self.pins]
        turns += [each for each in (less, {}) if len(each) < len(turns[-1])]
        return turns


class Tried(NamedTuple):
    """A plan that was in use, when steps were looked into."""

    plan: Planned  # With what they took as its promise.
    choices: Choices
    computing: list[float]  # Seconds of each rank in a step.


def decided(planned: Planned) -> Any:
    """Returns what two plans have in common that run alike."""
    decisions = planned.decisions
    stages = tuple((each.first_layer, each.end_layer) for each in decisions.stages)
    again = tuple(tuple(recomputed_of(planned, number)) for number in range(len(stages)))
    return decisions.shape, stages, again, decisions.placement


def seconds_of_rank(planned: Planned, rank: int) -> float:
    """Returns for how long the planner says that a rank of the group computes in a step."""
    decisions = planned.decisions
    ranks = decisions.placement or tuple(range(planned.graph.ranks))
    seats = Seats(decisions.shape, ranks, ranks.index(rank))
    stage = planned.document["decisions"]["stages"][seats.stage]
    terms, seconds = decisions.terms, stage["seconds"]
    again = 1 + terms.recompute / terms.compute if terms.compute else 1.0
    micro: float = seconds["forward"] + seconds["backward"]
    return micro * decisions.shape.micro_batches * again


def _slowed(planned: Planned, factor: float) -> Planned:
    """Returns the plan with all times of its promise longer."""
    decisions = planned.decisions
    terms = Terms(
        **{each.name: factor * getattr(decisions.terms, each.name) for each in fields(Terms)}
    )
    return replace(planned, decisions=replace(decisions, step=factor * decisions.step, terms=terms))


class Planning:
    """Makes plans for one training. Externally synchronized; all ranks call it together."""

    def __init__(
        self,
        wishes: Wishes,
        device: torch.device,
        dtype: torch.dtype,
        choices: Choosing,
        *,
        may_change: bool,
    ) -> None:
        """
        Args:
            device: this rank's.
            dtype: of the model.
            choices: as agreed_plan() takes it.
            may_change: while training lasts.
        """
        self.wishes = wishes
        self.may_change = may_change and wishes.objective == "time"
        """Whether steps that take longer than planned are a reason to plan again."""
        self.accepted = 0.0
        """What a step took when that was looked into, and the plan stayed."""
        self.said_at = -math.inf
        """When an event said what steps take, by the monotonic clock."""
        self.tried: dict[Any, Tried] = {}
        """Plans that were in use."""
        self._slower = 1.0  # What steps take, over what the planner says.
        self._device, self._dtype, self._choices = device, dtype, choices
        self._pins = wishes.pins  # Those that ranks allow.
        self._report: RankReport | None = None  # What this rank has measured.
        self._reports: tuple[Group, list[RankReport]] | None = None  # All of a group's.

    def first(self, recording: Recording, group: Group) -> tuple[Planned, Choices]:
        """Plans for the group's ranks; also returns how tensors are divided. Blocks."""
        resources = self.wishes.resources
        if resources is None:
            resources = cluster_of(self.measure(group))
        times = 1 if _context.membership() is None else _COPIES
        return self._agreed(recording, group, resources, self._pins, times)

    def storage(self, planned: Planned, stage: int) -> Storage | None:
        """Returns where a rank of a stage offloads to under a plan; None: it does not."""
        level, folder = LEVELS.index(planned.decisions.shape.offload), self.wishes.offload
        if not level or folder is None:
            return None
        here = planned.decisions.stages[stage]
        room = here.memory_limit - here.memory.total
        passing = here.memory.activations + here.memory.transient
        return Storage(folder, level, room, room + passing)

    def scratch(self, planned: Planned) -> Scratch | None:
        """Returns where a rank has what it gets when training moves to a plan that offloads."""
        folder, level = self.wishes.offload, planned.decisions.shape.offload
        return None if folder is None or level == LEVELS[0] else Scratch(folder)

    def lack_of_space(self, planned: Planned, times: int = 1) -> str | None:
        """Returns why this rank's disk has too little room for a plan.

        Args:
            times: what is put there over what the plan offloads.
        """
        folder = self.wishes.offload
        needed = times * max(stage.host for stage in planned.decisions.stages)
        if folder is None or not needed:
            return None
        nodes = _context.nodes()
        left = space_of(folder) / nodes.count(nodes[_context.rank()])
        if needed <= left:
            return None
        return (
            f"parallelize: offload: {folder}: has {left / 1e9:.2f} GB for this rank, and the plan "
            f"puts {needed / 1e9:.2f} GB there"
        )

    def has_room(self, planned: Planned, group: Group) -> bool:
        """Returns whether the disks of all ranks have room for a move to a plan. Blocks."""
        return not any(allgather_object(self.lack_of_space(planned, _MOVE), group=group))

    def again(self, recording: Recording, group: Group) -> tuple[Planned, Choices]:
        """Plans for another number of ranks than the wishes were for, perhaps. Blocks.

        A cluster of another number of devices is measured, and pins that ranks do not allow are let
        go of.
        """
        resources = self.wishes.resources
        if not self._fits(resources, group):
            resources = cluster_of(self.measure(group))
        turns = self.wishes.pins_in_turn()
        self.accepted, self.tried, self._slower = 0.0, {}, 1.0
        for self._pins in turns:
            try:
                return self._agreed(recording, group, resources, self._pins, _MOVE)
            except (InvalidArgumentError, ResourceExhaustedError):
                if self._pins is turns[-1]:
                    raise
        raise AssertionError("there is a turn")

    def _agreed(
        self,
        recording: Recording,
        group: Group,
        resources: object,
        pins: Mapping[str, object],
        times: int,
    ) -> tuple[Planned, Choices]:
        """`times`: room that a disk has to have, over what is offloaded."""
        wishes = self.wishes
        strategies, may_offload = wishes.strategies, "offload" in wishes.strategies
        dtypes = {"gradient_dtype": "f32"} if wishes.main_weights else {}
        if wishes.offload is None:
            strategies = tuple(each for each in strategies if each != "offload")
        asked = wishes.objective, {**dtypes, **pins}, wishes.memory_limit, strategies
        reports = None if resources is wishes.resources else self.known_reports(group)
        params = calibration_of(reports) if reports else None
        try:
            planned, choices = agreed_plan(
                recording, group, resources, *asked, self._choices, params
            )
        except ResourceExhaustedError as error:
            if not may_offload or wishes.offload is not None:
                raise
            hint = "or offload=, a folder on a disk for what memory has no room for"
            raise ResourceExhaustedError(f"{error}; {hint}") from None
        if wishes.offload is not None:
            raise_first(self.lack_of_space(planned, times), group)
        return planned, choices

    def _fits(self, resources: object, group: Group) -> bool:
        """Returns whether a cluster was given that has a device for each of the ranks.

        On the first of them, whose it is that is asked for. Blocks.
        """
        fits = resources is not None
        if fits and group.rank() == 0:
            try:
                checked_resources(resources, group.size())
            except (CorroError, OSError):
                fits = False
        answer: bool = broadcast_object(fits, group.ranks[0], group=group)
        return answer

    def measure(self, group: Group) -> list[RankReport]:
        """Returns what the group's ranks are; those that know are not measured again. Blocks."""
        reports = reports_of(group, self._device, self._dtype, self._report, self.wishes.offload)
        self.correct(reports, group)
        return reports

    def known_reports(self, group: Group) -> list[RankReport] | None:
        """Returns what the plan in use was made of; None: of a cluster that was given."""
        if self._reports is None or self._reports[0] is not group:
            return None
        return self._reports[1]

    def correct(self, reports: list[RankReport], group: Group, slower: float = 1.0) -> None:
        """From here on the group's ranks are this, and all slower by a factor than before."""
        self._report, self._reports = reports[group.rank()], (group, reports)
        self._slower *= slower

    def computing(self, planned: Planned) -> list[float]:
        """Returns for how long each rank computes in a step, as far as is known."""
        if (tried := self.tried.get(decided(planned))) is not None and tried.plan is planned:
            return tried.computing
        ranks = range(planned.graph.ranks)
        return [seconds_of_rank(planned, rank) * self._slower for rank in ranks]

    def best(self, recording: Recording, group: Group, cluster: object) -> tuple[Planned, Choices]:
        """Plans for a cluster that was corrected, which counts from here on. Blocks."""
        self.wishes = replace(self.wishes, resources=None)
        planned, choices = self._agreed(recording, group, cluster, self._pins, _MOVE)
        return _slowed(planned, self._slower), choices

    def planned_like(
        self, planned: Planned, recording: Recording, group: Group, cluster: object
    ) -> Planned:
        """Returns what a plan of the same degrees would be on another cluster. Blocks."""
        pins = {name: getattr(planned.decisions.shape, name) for name in _DEGREES}
        return self._agreed(recording, group, cluster, pins, _MOVE)[0]


def ordered_world() -> Group:
    """Returns the world, or a group of all its ranks, in which those of a host follow each other.

    Ranks that have joined come behind all others.
    """
    nodes = _context.nodes()
    ranks = sorted(range(len(nodes)), key=lambda rank: (nodes.index(nodes[rank]), rank))
    return _context.world() if ranks == list(range(len(nodes))) else new_group(ranks)
