"""How a training begins: ranks record, measure, plan, and each makes its trainer."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from corro import _context
from corro.planned import Planned
from corro.torch.parallel import samples
from corro.torch.parallel.main_weights import is_low
from corro.torch.parallel.offload import refusal_of_folder
from corro.torch.parallel.optimizer_calls import is_attached
from corro.torch.parallel.planning import STRATEGIES, Recording, agreed_recording, raise_first
from corro.torch.parallel.replanning import Planning, Wishes
from corro.torch.parallel.scaling import Scaling, refusal_of
from corro.torch.parallel.sharded_optimizer import goes_by_elements
from corro.torch.parallel.shards import Form
from corro.torch.parallel.stage import Loss
from corro.torch.parallel.tensor.choice import Choices, choices_of
from corro.torch.parallel.trainer import Trainer, device_of
from corro.torch.wrapped import WrappedOptimizer


def parallelize(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    sample_batch: Any,
    resources: object = None,
    objective: str = "time",
    *,
    strategies: Iterable[str] = STRATEGIES,
    pins: Mapping[str, object] | None = None,
    memory_limit: float | str | None = None,
    offload: str | os.PathLike[str] | None = None,
    max_norm: float | None = None,
    loss_scale: float | str | None = None,
    main_weights: bool = False,
    replan: bool = True,
) -> Trainer:
    """Plans how this job's ranks train a model together, and returns what does so.

    Called by all ranks with the same model, and blocks until all have come. Rank 0's parameters,
    buffers and optimizer state count, and its torch.initial_seed(), from which dropout is drawn.
    Nothing is computed yet. A rank that joins an elastic job communicates with nobody here: it gets
    its plan in corro.elastic.run, with a TrainerState.

    Args:
        model: any module; its own `forward` runs on every rank.
        optimizer: made over model.parameters().
        loss: `loss(model, batch)` returns a scalar: the mean over the samples of a batch.
        sample_batch: a whole batch of a step, of all ranks together: tensors in tuples, lists and
            dicts, whose first dim is that of the samples. For its shapes alone.
        resources: the machines: the path of a cluster file, or a mapping with its fields
            (docs/planner.md), with a device for each rank. None: this job's ranks, whose speed and
            links are measured, in about a second.
        objective: "time", "cost" or "samples_per_price".
        strategies: those that are allowed, of "data", "pipeline", "tensor", "sequence" (tokens are
            divided over the ranks of tensor, too), "sharding" (ZeRO), "recompute", "offload".
            Tensor, sharding and offload need an optimizer of torch.optim that goes by elements, as
            Adam and SGD do.
        pins: what is decided already, as corro.plan() takes it: {"pipeline": 2, "micro_batch": 1}.
        memory_limit: of a device, bytes or text as "2 GiB"; default: 94 % of what it has.
        offload: a folder on each host's disk for what fits into no device's memory, of parameters,
            gradients and optimizer state. Files in it have no names, and vanish with the trainer.
        max_norm: gradients are scaled down to this 2-norm, over all parameters, if theirs is more.
        loss_scale: by what losses are multiplied before backward, and gradients divided after:
            a number, or "dynamic". For float16. A step whose gradients overflow changes nothing.
        main_weights: of parameters in bfloat16 or float16 the optimizer steps copies in f32, with
            state in f32, of gradients that are added up in f32; parameters are the copies, rounded.
        replan: another plan is made where steps take more than a fifth longer than planned.

    Raises:
        InvalidArgumentError: on every rank: what is wrong, and on which.
        MismatchError: on every rank: ranks have different models or batches.
        ResourceExhaustedError: no plan fits: by how much, where, and what would.
    """
    group = None if _context.is_outside() else _context.world()
    batch = samples.plain(sample_batch)
    refusal = _refusal(model, optimizer, loss, batch) or refusal_of(max_norm, loss_scale)
    refusal = refusal or _refusal_of_mains(model, main_weights)
    refusal = refusal or _refusal_of_offload(model, offload, pins or {})
    raise_first(refusal, group)
    recording = agreed_recording(model, loss, batch, group)
    excluded: set[str] = set()
    if not goes_by_elements(optimizer):
        raise_first(_refusal_to_shard(optimizer, pins), group)
        excluded = {"sharding", "tensor", "offload"}
    if device_of(model).type != "cpu":
        excluded.add("offload")
    allowed = tuple(each for each in strategies if each not in excluded)

    divisible = _divisible(model, optimizer)

    def choices(planned: Planned) -> Choices:
        names = _of_one_stage(divisible, recording, planned)
        with trainer._running():
            return choices_of(model, loss, batch, names, planned.decisions.shape)

    folder = None if offload is None else os.fspath(offload)
    own_pins = dict(pins or {})
    wishes = Wishes(resources, objective, own_pins, memory_limit, allowed, main_weights, folder)
    planning = Planning(wishes, device_of(model), recording.dtype, choices, may_change=replan)
    scaling = Scaling(max_norm, loss_scale)
    trainer = Trainer(model, optimizer, loss, recording, planning, scaling)
    if group is not None:
        trainer._begin(group)
    return trainer


def _refusal(model: Any, optimizer: Any, loss: Any, batch: Any) -> str | None:
    if not isinstance(model, nn.Module):
        return f"parallelize: model: a {type(model).__name__} is no nn.Module"
    if not isinstance(optimizer, torch.optim.Optimizer):
        return f"parallelize: optimizer: a {type(optimizer).__name__} is no torch optimizer"
    if not callable(loss):
        return "parallelize: loss: must be a function of the model and a batch"
    if (refusal := _refusal_of_parameters(model) or _refusal_of_optimizer(optimizer)) is not None:
        return refusal
    own = {id(each) for each in model.parameters()}
    held = [each for one in optimizer.param_groups for each in one["params"]]
    strange = sum(id(each) not in own for each in held)
    if strange:
        return f"parallelize: optimizer: has {strange} parameters that are not the model's"
    if not any(isinstance(leaf, Tensor) for leaf in tree_flatten(batch)[0]):
        return "parallelize: sample_batch: has no tensors"
    return None


def _refusal_of_parameters(model: nn.Module) -> str | None:
    devices: dict[torch.device, str] = {}
    for name, each in (*model.named_parameters(), *model.named_buffers()):
        if each.is_meta:
            return f"parallelize: model: {name}: is on the meta device, without contents"
        devices.setdefault(each.device, name)
    if len(devices) > 1:
        places = ", ".join(f"{name} on {device}" for device, name in devices.items())
        return f"parallelize: model: is on several devices: {places}"
    if not any(each.requires_grad for each in model.parameters()):
        return "parallelize: model: no parameter requires a gradient"
    return None


def _refusal_of_optimizer(optimizer: torch.optim.Optimizer) -> str | None:
    kind = type(optimizer).__name__
    if isinstance(optimizer, WrappedOptimizer):
        return (
            "parallelize: optimizer: a DistributedOptimizer reduces gradients by itself: give the "
            "optimizer alone"
        )
    if is_attached(optimizer):
        return "parallelize: optimizer: another trainer has it: call its close() first"
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        return f"parallelize: optimizer: {kind}.step() needs a closure, which no trainer has"
    return None


def _refusal_of_mains(model: nn.Module, main_weights: object) -> str | None:
    if not isinstance(main_weights, bool):
        return f"parallelize: main_weights: {main_weights!r} is neither True nor False"
    if main_weights and not any(map(is_low, model.parameters())):
        return "parallelize: main_weights: no parameter is in bfloat16 or float16"
    return None


def _refusal_of_offload(model: nn.Module, folder: object, pins: Mapping[str, object]) -> str | None:
    level = pins.get("offload", "off")
    if folder is None and level == "off":
        return None
    if folder is None:
        return f"parallelize: pins: offload {level} needs offload=, a folder on this host's disk"
    if (refusal := refusal_of_folder(folder)) is not None:
        return refusal
    if (device := device_of(model)).type != "cpu":
        return f"parallelize: offload: parameters are on {device}, and have to be on the cpu"
    if level != "off" and pins.get("tensor", 1) != 1:
        return f"parallelize: pins: tensor {pins['tensor']} does not go with offload {level}"
    return None


def _refusal_to_shard(
    optimizer: torch.optim.Optimizer, pins: Mapping[str, object] | None
) -> str | None:
    kind = type(optimizer)
    for pin, without in (("zero", 0), ("tensor", 1), ("offload", "off")):
        value = (pins or {}).get(pin, without)
        if value != without:
            return (
                f"parallelize: pins: {pin} {value} needs an optimizer of torch.optim that goes by "
                f"elements; {kind.__module__}.{kind.__qualname__} is not known to do so"
            )
    return None


def _divisible(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Returns the parameters that are trained, and lie as boxes of them can be told (boxes.py)."""
    stepped = {id(each) for one in optimizer.param_groups for each in one["params"]}
    return [
        name
        for name, each in model.named_parameters()
        if id(each) in stepped and each.requires_grad and each.layout == torch.strided
        if Form.of(each).dims == tuple(each.shape)
    ]


def _of_one_stage(names: Iterable[str], recording: Recording, planned: Planned) -> list[str]:
    """Returns those that one stage of a plan alone uses."""
    stages: Counter[str] = Counter()
    for stage in planned.decisions.stages:
        layers = recording.layers[stage.first_layer : stage.end_layer]
        stages.update({name for layer in layers for name in layer.parameters})
    return [name for name in names if stages[name] == 1]
