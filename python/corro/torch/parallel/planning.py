"""How ranks come to one plan: each records the model, rank 0 plans, all hear of it.

Planning is for what this trainer runs: data, pipeline and tensor parallelism, what data-parallel
ranks share (ZeRO), and recomputing of layers.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import corro
from corro._agreement import check_same_lines
from corro._context import Group
from corro._objects import allgather_object, broadcast_object
from corro.errors import CorroError, InvalidArgumentError, ResourceExhaustedError
from corro.graph import Plan
from corro.model import ModelDescription
from corro.planned import Planned, Stage
from corro.torch.parallel import slots
from corro.torch.parallel.borders import Layer, layers_of
from corro.torch.parallel.offload import PARAMETERS
from corro.torch.parallel.resources import check_offload, checked_resources
from corro.torch.parallel.samples import count_of, form_of
from corro.torch.parallel.sharding import level_of
from corro.torch.parallel.stage import Loss
from corro.torch.parallel.tensor.choice import Choices, seconds_of_call
from corro.torch.recorder.describe import Subject, describe
from corro.torch.recorder.run import dtype_of, first_tensor, tokens_of, trace_step

STRATEGIES = ("data", "pipeline", "tensor", "sequence", "sharding", "recompute", "offload")
Choosing = Callable[[Planned], Choices]
"""What the tensor parallelism of a plan divides, and how."""
_PINS = {"overlap": False, "schedule": "1f1b"}
_NONE, _ATTENTION, _FULL, _OFFLOAD = range(4)  # Levels of recomputation in a decision file.


@dataclass(frozen=True, slots=True)
class Recording:
    """A model as the planner and as the trainer know it, layer by layer."""

    description: ModelDescription
    layers: tuple[Layer, ...]
    samples: int
    dtype: torch.dtype
    """That most parameters have."""
    batch: str
    """The form of what it was recorded with."""
    decides: tuple[str, ...]
    """Modules that read numbers from tensors that depend on parameters, and so may decide."""
    parameters: Mapping[str, int]
    """Elements of each."""

    @classmethod
    def of(cls, model: nn.Module, loss: Loss, batch: Any) -> Recording:
        """Records one step without computing it.

        Raises:
            InvalidArgumentError: it does not run on this batch, or asks for values of tensors.
        """
        samples = count_of(batch, "parallelize: sample_batch")
        if not samples:
            raise InvalidArgumentError("parallelize: sample_batch: has no samples")
        trace = trace_step(model, batch, loss)
        units, layers = layers_of(trace)
        first = first_tensor(batch)
        dtype = dtype_of(model, first)
        subject = Subject(type(model).__name__, samples, tokens_of(first), dtype)
        decides = tuple(dict.fromkeys(each.path for each in trace.numbers))
        sizes = {name: each.numel() for name, each in model.named_parameters()}
        description = describe(trace, subject, units)
        return cls(description, tuple(layers), samples, dtype, form_of(batch), decides, sizes)

    @property
    def lines(self) -> list[str]:
        """What has to be the same on all ranks."""
        return [
            f"a sample_batch of {self.samples}: {self.batch}",
            f"parameters in {str(self.dtype).removeprefix('torch.')}",
            *(
                f"layer {layer.name} with {', '.join(layer.parameters) or 'no parameters'}, "
                f"given {layer.border}"
                for layer in self.layers
            ),
        ]


def agreed_recording(model: nn.Module, loss: Loss, batch: Any, group: Group | None) -> Recording:
    """Records on each rank; an error of one is an error on all. Blocks until all have come.

    `group`: None on a rank that joins: the others are asked later.
    """
    recording, failure = None, None
    try:
        recording = Recording.of(model, loss, batch)
    except InvalidArgumentError as error:
        failure = error
    raise_first(None if failure is None else str(failure), group)
    assert recording is not None
    if group is not None:
        check_same_lines(group, "parallelize", recording.lines)
    for path in recording.decides:
        warnings.warn(
            f"parallelize: {path or 'loss'}: reads a number from a tensor that parameters have a "
            "part in; what it decides by that is decided for each micro-batch alone",
            stacklevel=3,
        )
    return recording


def raise_first(failure: str | None, group: Group | None) -> None:
    """Raises InvalidArgumentError on every rank if one has failed. Blocks until all have come.

    `group`: None on a rank that joins, which is alone with it.
    """
    if group is None:
        if failure is not None:
            raise InvalidArgumentError(failure)
        return
    for rank, line in zip(group.ranks, allgather_object(failure, group=group), strict=True):
        if line is not None:
            where = "" if rank == corro.rank() else f"rank {rank}: "
            raise InvalidArgumentError(f"{where}{line}")


def agreed_plan(
    recording: Recording,
    group: Group,
    resources: object,
    objective: str,
    pins: Mapping[str, object] | None,
    memory_limit: float | str | None,
    strategies: Iterable[str],
    choices: Choosing,
    params: Mapping[str, float] | None = None,
) -> tuple[Planned, Choices]:
    """Plans on the group's first rank, and returns the same on all. Blocks until all have come.

    Args:
        choices: returns what a plan's tensor parallelism divides.
        params: the calibration of resources that were measured.

    Raises:
        InvalidArgumentError: the resources or the options are wrong.
        ResourceExhaustedError: nothing fits: by how much, where, and what would.
    """
    answer: tuple[Planned, Choices] | CorroError | None = None
    if group.rank() == 0:
        try:
            checked_resources(resources, group.size())
            if (pins or {}).get("offload", "off") != "off":
                check_offload(resources)
            given = recording, resources, objective, memory_limit, tuple(strategies), choices
            planner = _Planner(*given, params)
            planned = planner.best(dict(pins or {}), group.size())
            answer = planned, choices(planned)
        except (CorroError, OSError) as error:
            answer = error if isinstance(error, CorroError) else InvalidArgumentError(str(error))
    answer = broadcast_object(answer, group.ranks[0], group=group)
    if isinstance(answer, CorroError):
        raise answer
    assert answer is not None
    return answer


@dataclass(frozen=True, slots=True)
class _Planner:
    """Asks corro.plan() for what the trainer can run."""

    recording: Recording
    resources: object
    objective: str
    memory_limit: float | str | None
    strategies: tuple[str, ...]
    choices: Choosing
    params: Mapping[str, float] | None

    def best(self, pins: Mapping[str, object], ranks: int) -> Planned:
        """Returns the best plan of all ranks.

        Unless they are pinned, offloading and dividing tokens (sequence parallelism) are for what
        does not fit into memory: no step gets shorter by them. Offloading does not go with tensor
        parallelism.
        """
        if pins.get("offload", "off") != "off":
            return self._of_all({"tensor": 1, **pins}, ranks)
        try:
            return self._in_memory({**pins, "offload": "off"}, ranks)
        except ResourceExhaustedError:
            if "offload" in pins or "offload" not in self.strategies or pins.get("tensor", 1) != 1:
                raise
        return self._of_all({**pins, "tensor": 1}, ranks)

    def _in_memory(self, pins: Mapping[str, object], ranks: int) -> Planned:
        if "tensor" in pins or "tensor" not in self.strategies:
            return self._of_all(pins, ranks)
        try:
            whole = self._of_all({**pins, "tensor": 1}, ranks)
        except ResourceExhaustedError:
            found = self._of_all(pins, ranks)
            if 2 * self._divided(found)[0] < 1:
                raise
            return found
        divided = self._dividing(pins, ranks)
        if divided is None or divided.step >= whole.step or self._step_of(divided) >= whole.step:
            return whole
        return divided

    def _dividing(self, pins: Mapping[str, object], ranks: int) -> Planned | None:
        """Returns the best plan of all if it divides tensors, and tokens by a pin alone."""
        try:
            found = self._of_all({"sequence_parallel": False, **pins}, ranks)
        except (InvalidArgumentError, ResourceExhaustedError):
            return None
        return found if found.decisions.shape.tensor > 1 else None

    def _step_of(self, found: Planned) -> float:
        """Returns the seconds of a step that divides tensors, with what planners do not count: what
        cannot be divided, which each rank computes, and Python's time for calls with splits."""
        shape, terms = found.decisions.shape, found.decisions.terms
        share, calls = self._divided(found)
        work = terms.compute + terms.recompute + terms.update
        here = calls / shape.pipeline * shape.micro_batches
        return found.step + (1 - share) * (shape.tensor - 1) * work + here * seconds_of_call()

    def _of_all(self, pins: Mapping[str, object], ranks: int) -> Planned:
        """Returns the best plan of all ranks: the planner's own may leave some of them idle."""
        found = self._runnable(pins)
        if found.graph.ranks == ranks:
            return found
        degrees = [
            {"tensor": tensor, "data": data, "pipeline": ranks // tensor // data}
            for tensor in _divisors(ranks)
            for data in _divisors(ranks // tensor)
        ]
        fitting = [each for each in degrees if all(pins.get(k, v) == v for k, v in each.items())]
        plans = self._each(lambda more: self._runnable({**pins, **more}), fitting)
        if not plans:
            raise InvalidArgumentError(
                f"parallelize: pins: {dict(pins)} leave {ranks - found.graph.ranks} of {ranks} "
                f"ranks idle; run with {found.graph.ranks}, or pin less"
            )
        return min(plans, key=lambda each: each.step)

    def _runnable(self, pins: Mapping[str, object]) -> Planned:
        found = self._plan(pins)
        ways = _ways_to_run(found)
        if not ways:
            return found
        plans = self._each(lambda more: self._runnable({**pins, **more}), ways)
        return min(plans, key=lambda each: each.step)

    def _divided(self, found: Planned) -> tuple[float, int]:
        """Returns which share of the parameters tensor parallelism divides, and how many calls."""
        sizes = self.recording.parameters
        try:
            choices = self.choices(found)
        except InvalidArgumentError:  # The model does not run on parts of tensors.
            return 0.0, 0
        return sum(sizes[name] for name in choices.parameters) / sum(sizes.values()), choices.calls

    def _each(
        self, plan: Callable[[Mapping[str, object]], Planned], ways: Iterable[Mapping[str, object]]
    ) -> list[Planned]:
        """Returns the plans that fit; if none of some ways does, raises why not."""
        plans: list[Planned] = []
        refusal: CorroError | None = None
        for more in ways:
            try:
                plans.append(plan(more))
            except (InvalidArgumentError, ResourceExhaustedError) as error:  # No way, or no room.
                refusal = error
        if not plans and refusal is not None:
            raise refusal
        return plans

    def _plan(self, pins: Mapping[str, object]) -> Planned:
        dtype = self.recording.description.dtype
        return corro.plan(
            self.recording.description,
            self.resources,
            objective=self.objective,
            global_batch=self.recording.samples,
            memory_limit=self.memory_limit,
            strategies=self.strategies,
            params=self.params,
            pins={**_PINS, "dtype": dtype, "gradient_dtype": dtype, **pins},
        )


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _ways_to_run(found: Planned) -> list[dict[str, object]]:
    """Returns pins instead of what the trainer cannot do; none if it can do all of the plan."""
    if not all(_is_run(stage) for stage in found.document["decisions"]["stages"]):
        return [{"recompute": "none"}, {"recompute": "full"}]  # Of all layers alike.
    return []


def _is_run(stage: Mapping[str, Any]) -> bool:
    """Whether its layers recompute all or nothing."""
    return not any(
        sum(run[_ATTENTION:_FULL] + run[_OFFLOAD:]) for run in stage.get("recompute", ())
    )


def recomputed_of(planned: Planned, number: int) -> list[bool]:
    """Returns for each layer of a stage whether it is computed again in backward."""
    stage = planned.document["decisions"]["stages"][number]
    first, end = stage["layers"]
    counts = [run.get("count", 1) for run in planned.document["model"]["layers"]]
    levels = stage.get("recompute") or [[0, 0, 0]] * len(counts)
    flags: list[bool] = []
    begin = 0
    for count, level in zip(counts, levels, strict=True):
        here = max(0, min(end, begin + count) - max(first, begin))
        flags += [place < level[_FULL] for place in range(here)]
        begin += count
    return flags


def runnable(planned: Planned, recording: Recording) -> Plan:
    """Returns the plan's graph with room in its channels for what stages hand on.

    What forward keeps for backward lies in torch, so that the stash is a token. Where ranks of a
    stage wait for each other in forward and backward, they go forward and backward in one order.
    """
    stages, shape = planned.decisions.stages, planned.decisions.shape
    channels = []
    for channel in planned.graph.channels:
        what, _, service = channel.name.partition(".")
        size = 0
        if service:
            number = int(service[1:]) // (shape.data * shape.tensor)
            after = stages[number + 1 if what == "activation" else number]
            size = slots.HEADER + _bytes_into(recording, after, shape.micro_batch)
        channels.append(dataclasses.replace(channel, slot_bytes=size))
    graph = dataclasses.replace(planned.graph, channels=tuple(channels))
    gathers = level_of(shape) == PARAMETERS
    return _in_one_order(graph) if gathers or shape.tensor > 1 else graph


def _in_one_order(graph: Plan) -> Plan:
    """Returns the graph with 1F1B in agreed order: F(k), then B(k - lag) as credits allow it."""
    slots_of = {channel.name: channel.slots for channel in graph.channels}
    services = []
    for service in graph.services:
        stash = next((name for name in service.inputs if name.startswith("stash")), None)
        lag = slots_of[stash] - 1 if stash else 0
        services.append(dataclasses.replace(service, lag=lag))
    lanes = tuple(dataclasses.replace(lane, order="agreed") for lane in graph.lanes)
    return dataclasses.replace(graph, lanes=lanes, services=tuple(services))


def lag_of(graph: Plan, service: str) -> int:
    return next(each.lag for each in graph.services if each.name == service)


def _bytes_into(recording: Recording, stage: Stage, samples: int) -> int:
    border = recording.layers[stage.first_layer].border
    assert border is not None
    return -(-border.bytes * samples // recording.samples)
