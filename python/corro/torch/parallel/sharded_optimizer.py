"""The user's optimizer steps this rank's parts of parameters instead of the parameters.

It is the user's object all along: groups, learning rates, schedulers and hooks stay. What it steps
and the state of that are replaced, in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from corro.torch.parallel.shards import Shard

_BY_ELEMENTS = (
    *("SGD", "ASGD", "Adagrad", "Adadelta", "RMSprop", "Rprop"),
    *("Adam", "AdamW", "Adamax", "NAdam", "RAdam"),
)


def goes_by_elements(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether it steps each element by that element's gradient and state alone.

    Of torch's own that is known; a subclass may do anything.
    """
    return type(optimizer) in {getattr(torch.optim, name) for name in _BY_ELEMENTS}


def step_parts(
    optimizer: torch.optim.Optimizer, shards: Iterable[Shard], *, cut: bool = True
) -> None:
    """From now on it steps the parts, with their part of the state; if `cut`, else state stays."""
    for shard in shards:
        for number, (parameter, part) in enumerate(zip(shard.parameters, shard.parts, strict=True)):
            _replace(optimizer, parameter, part, partial(shard.cut, number) if cut else None)


def step_parameters(
    optimizer: torch.optim.Optimizer, shards: Iterable[Shard], *, join: bool = True
) -> None:
    """From now on it steps the parameters again, with all of their state; if `join`, which is
    collective and blocks, else state stays."""
    for shard in shards:
        for number, (parameter, part) in enumerate(zip(shard.parameters, shard.parts, strict=True)):
            _replace(optimizer, part, parameter, partial(shard.join, number) if join else None)


def _replace(
    optimizer: torch.optim.Optimizer,
    old: nn.Parameter,
    new: nn.Parameter,
    converted: Callable[[Tensor], Tensor] | None,
) -> None:
    for group in optimizer.param_groups:
        group["params"][:] = [new if each is old else each for each in group["params"]]
    state: dict[str, Any] | None = optimizer.state.pop(old, None)
    if state is not None:
        optimizer.state[new] = {
            key: converted(value) if converted is not None and _is_like(value, old) else value
            for key, value in state.items()
        }


def _is_like(value: Any, parameter: nn.Parameter) -> bool:
    """Whether a value of a parameter's state has a number for each element."""
    return isinstance(value, Tensor) and value.shape == parameter.shape
