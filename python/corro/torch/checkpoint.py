"""What corro.checkpoint writes of a TorchState: tensors as they are, and an optimizer by names.

`corro.torch.checkpoint.Checkpointer` is that of corro.checkpoint.

A state_dict() of an optimizer calls parameters by numbers. In a checkpoint they have the names that
the model gives them, so it does not matter in which order they were given to the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from corro._contents import Boxes, Contents, Form, Share
from corro._plain import from_text
from corro.elastic._state import differences, listed
from corro.errors import InvalidArgumentError
from corro.torch.optimizer_state import Received
from corro.torch.verbs import DTYPES

if TYPE_CHECKING:
    from torch import Tensor

    from corro import _checkpoint

_DTYPES = {number: dtype for dtype, number in DTYPES.items()}


def __getattr__(name: str) -> Any:
    if name == "Checkpointer":  # Not before it is asked for: not every wheel has checkpoints.
        return import_module("corro.checkpoint").Checkpointer
    raise AttributeError(f"module 'corro.torch.checkpoint' has no attribute {name!r}")


class TorchContents(Contents):
    """A tree with tensors, dense ones of any strides and on any device.

    Two names of the same memory, such as tied weights, are written once.
    """

    def __init__(self, tree: Any) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._names: dict[object, str] = {}
        super().__init__(tree)

    def _take(self, path: str, value: Any) -> dict[str, Any] | None:
        if not isinstance(value, torch.Tensor):
            return None
        _check(path, value)
        tensor = value.detach()
        key = (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        name = self._names.get(key) if tensor.numel() else None
        if name is None:
            name = path
            while name in self._tensors:  # Dots of one name may be levels of another.
                name += "'"
            self._names[key] = name
            self._tensors[name] = tensor
        return {"$tensor": name}

    def forms(self) -> list[Form]:
        return [(DTYPES[one.dtype], list(one.shape)) for one in self._tensors.values()]

    def boxes(self, share: Share) -> Boxes:
        tensors = list(self._tensors.items())
        return [
            (name, DTYPES[tensor.dtype], list(tensor.shape), offsets, shape)
            for index, offsets, shape in share
            for name, tensor in (tensors[index],)
        ]

    def copy(self, share: Share, memory: memoryview, offsets: Sequence[int]) -> None:
        tensors = list(self._tensors.values())
        whole = torch.frombuffer(memory, dtype=torch.uint8)
        for (index, begin, shape), offset in zip(share, offsets, strict=True):
            tensor = tensors[index]
            box = tensor[tuple(slice(b, b + n) for b, n in zip(begin, shape, strict=True))]
            if box.numel():
                size = box.numel() * box.element_size()
                whole[offset : offset + size].view(tensor.dtype).view(box.shape).copy_(box)

    def read(self, opened: _checkpoint.Opened) -> Any:
        tensors = opened.tensors
        if unknown := [name for name, dtype, _ in tensors if dtype not in _DTYPES]:
            raise InvalidArgumentError(f"torch has not the dtype of {listed(unknown)}")
        made = [torch.empty(shape, dtype=_DTYPES[dtype]) for _, dtype, shape in tensors]
        opened.read(
            [
                (index, [0] * len(shape), shape, made[index].data_ptr())
                for index, (_, _, shape) in enumerate(tensors)
            ]
        )
        by_name = {name: tensor for (name, _, _), tensor in zip(tensors, made, strict=True)}
        return from_text(opened.values, lambda mark: by_name[mark["$tensor"]])


def named_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module | None) -> dict[str, Any]:
    """Returns the optimizer's state and groups, with names for parameters."""
    saved, names = optimizer.state_dict(), _names(optimizer, model)
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    name_of = dict(zip(numbers, (name for group in names for name in group), strict=True))
    return {
        "kind": type(optimizer).__name__,  # DistributedOptimizer keeps the name.
        "state": {name_of.get(key, key): value for key, value in saved["state"].items()},
        "groups": [
            {**group, "params": own}
            for group, own in zip(saved["param_groups"], names, strict=True)
        ],
    }


@dataclass(frozen=True, slots=True)
class _Loaded:
    """An optimizer's state out of a checkpoint."""

    object: Any
    on_device: set[int]


def loaded_optimizer(
    tree: dict[str, Any], optimizer: torch.optim.Optimizer, model: nn.Module | None
) -> Received:
    """Returns what named_optimizer() has returned elsewhere, with numbers for names again."""
    names = _names(optimizer, model)
    flat = [name for group in names for name in group]
    number_of = {name: number for number, name in enumerate(flat)}
    groups = [  # Another torch may know other options.
        {**ours, **theirs, "params": [number_of[name] for name in own]}
        for ours, theirs, own in zip(optimizer.param_groups, tree["groups"], names, strict=True)
    ]
    state = {number_of.get(key, key): value for key, value in tree["state"].items()}
    return _Loaded(
        {
            "state_dict": {"state": state, "param_groups": groups},
            "defaults": optimizer.defaults,
        },
        _on_device(state, groups),
    )


def _on_device(state: Mapping[Any, Any], groups: Sequence[Mapping[str, Any]]) -> set[int]:
    """Returns the ids of tensors that belong to the parameter's device: all, as in torch, but for
    steps that the host counts.
    """
    counts_on_device = {
        number
        for group in groups
        if group.get("capturable") or group.get("fused")
        for number in group["params"]
    }
    return {
        id(value)
        for number, values in state.items()
        if isinstance(values, dict)
        for key, value in values.items()
        if isinstance(value, torch.Tensor) and (key != "step" or number in counts_on_device)
    }


def _names(optimizer: torch.optim.Optimizer, model: nn.Module | None) -> list[list[str]]:
    """Returns the names of each group's parameters; one that the model has not is a number."""
    known: dict[int, str] = {}
    for name, param in model.named_parameters() if model is not None else ():
        known[id(param)] = name
    params = [param for group in optimizer.param_groups for param in group["params"]]
    numbers = {id(param): f"#{number}" for number, param in enumerate(params)}
    return [
        [known.get(id(param)) or numbers[id(param)] for param in group["params"]]
        for group in optimizer.param_groups
    ]


def misfit_of_optimizers(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Returns in what two named_optimizer() differ: their class, or the parameters of groups."""
    if theirs["kind"] != ours["kind"]:
        return f"its optimizer is {theirs['kind']}, and {ours['kind']} is here"
    if len(theirs["groups"]) != len(ours["groups"]):
        counts = f"{len(theirs['groups'])} parameter groups, and {len(ours['groups'])} are here"
        return f"its optimizer has {counts}"
    texts = [
        differences(f"parameters of group {number}", their["params"], our["params"])
        for number, (their, our) in enumerate(zip(theirs["groups"], ours["groups"], strict=True))
    ]
    return "; ".join(text for text in texts if text)


def misfit_of_tensors(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Returns in which tensors a checkpoint differs from the model; "" if in none."""
    texts = [differences("tensors", theirs, ours)]
    pairs = {name: (theirs[name], ours[name]) for name in ours if name in theirs}
    texts += [
        f"{name} is {_form(their)}, and {_form(our)} here"
        for name, (their, our) in pairs.items()
        if _form(their) != _form(our)
    ]
    return "; ".join(text for text in texts if text)


def _form(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return "no tensor"
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def _check(path: str, tensor: Tensor) -> None:
    is_plain = type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout == torch.strided
    if not is_plain or tensor.is_quantized or tensor.is_meta:
        what = "quantized" if tensor.is_quantized else f"a {type(tensor).__name__}"
        raise InvalidArgumentError(
            f"checkpoint: {path} is {what} of layout {tensor.layout}; dense tensors can be written"
        )
    if tensor.dtype not in DTYPES:
        raise InvalidArgumentError(
            f"checkpoint: {path} has the dtype {tensor.dtype}, which cannot be written"
        )
