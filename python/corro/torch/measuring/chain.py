"""A model as the chain of layers that the planner knows, each of which can be called alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from corro.errors import InvalidArgumentError
from corro.model import ModelDescription
from corro.torch.recorder.chain import Unit, cut
from corro.torch.recorder.describe import Subject, describe
from corro.torch.recorder.run import trace_model

Loss = Callable[[Any], Tensor]
Built = tuple[nn.Module, Any, Loss]
"""A model, its input and its loss."""
Build = Callable[[int], Built]
"""Builds them for so many samples."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The layers of one model in the order in which they are called; the loss follows the last."""

    description: ModelDescription
    layers: tuple[nn.Sequential, ...]
    items: tuple[slice, ...]
    """Which items of the nn.Sequential each layer is, in every model that is built."""
    kinds: tuple[str, ...]
    """The name of each layer's type."""
    repeated: tuple[bool, ...]
    """Whether a layer is one of several alike in a row: what full recomputation is for."""
    outputs: tuple[torch.Size, ...]
    """The shape of each layer's output for one sample."""

    def boundary(self, layer: int, samples: int) -> tuple[int, ...]:
        """Returns the shape of what `layer` hands on for so many samples."""
        first, *rest = self.outputs[layer]
        return (first * samples, *rest)


def chain_of(build: Build) -> Chain:
    """Builds the model and cuts it.

    Raises:
        InvalidArgumentError: it is no nn.Sequential, or a layer ends inside of one of its items.
    """
    model, inputs, loss = build(1)
    if not isinstance(model, nn.Sequential):
        raise InvalidArgumentError(
            f"--model: must return an nn.Sequential to be cut into stages, not a "
            f"{type(model).__name__}"
        )
    trace = trace_model(model, (inputs,), {}, loss)
    units = cut(trace)
    dtype = next((each.dtype for each in model.parameters()), torch.float32)
    sequence = inputs.shape[1] if inputs.dim() > 1 and not inputs.is_floating_point() else 0
    description = describe(trace, Subject(type(model).__name__, 1, sequence, dtype))
    runs = [run for run in description.layers for _ in range(run.count)]
    items = _items(model, units)
    layers = tuple(model[each] for each in items)
    return Chain(
        description,
        layers,
        items,
        tuple(description.types[run.type].name for run in runs),
        tuple(run.count > 1 for run in runs),
        tuple(_outputs(layers, inputs)),
    )


def _outputs(layers: Sequence[nn.Module], x: Tensor) -> Iterator[torch.Size]:
    with torch.no_grad():
        for layer in layers:
            x = layer(x)
            yield x.shape


def _items(model: nn.Sequential, units: Sequence[Unit]) -> tuple[slice, ...]:
    """Returns the items of the model that each layer calls: none for one that is but the loss."""
    names = [name for name, _ in model.named_children()]
    begins = [0]
    for unit in units[1:]:
        first = unit.name.partition(".")[0]
        begins.append(names.index(first) if first in names else len(names))
    ends = [*begins[1:], len(names)]
    for unit, begin, end in zip(units, begins, ends, strict=True):
        if begin > end or (begin == end and unit.calls):
            raise InvalidArgumentError(f'--model: layer "{unit.name}" ends inside of an item')
    return tuple(slice(begin, end) for begin, end in zip(begins, ends, strict=True))
