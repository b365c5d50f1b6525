"""The user's optimizer steps this rank's parts of parameters instead of the parameters.

It is the user's object all along: groups, learning rates, schedulers and hooks stay. What it steps
and the state of that are replaced, in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from corro.torch.parallel.shards import Shard
    from corro.torch.parallel.tensor.parts import Parts

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
    optimizer: torch.optim.Optimizer, shards: Iterable[Shard | Parts], *, cut: bool = True
) -> None:
    """From now on it steps the parts, with their part of the state; if `cut`, else state stays."""
    for shard in shards:
        for number, (parameter, part) in enumerate(zip(shard.parameters, shard.parts, strict=True)):
            converted = partial(shard.cut, number) if cut else None
            replace(optimizer, parameter, part, converted, casts=cut)


def step_parameters(
    optimizer: torch.optim.Optimizer,
    shards: Iterable[Shard | Parts],
    *,
    join: bool = True,
    casts: bool = False,
) -> None:
    """From now on it steps the parameters again.

    Args:
        join: with all of their state, which is collective and blocks; else state stays.
        casts: they get their state in their dtype; else it has that of the parts.
    """
    for shard in shards:
        for number, (parameter, part) in enumerate(zip(shard.parameters, shard.parts, strict=True)):
            converted = partial(shard.join, number) if join else None
            replace(optimizer, part, parameter, converted, casts=casts)


def step_accumulators(optimizer: torch.optim.Optimizer, shards: Iterable[Shard]) -> None:
    """From now on its parameters have whole shapes, and the dtype of parts; state stays."""
    for shard in shards:
        for part, whole in zip(shard.parts, shard.accumulators, strict=True):
            replace(optimizer, part, whole)


def step_parts_again(optimizer: torch.optim.Optimizer, shards: Iterable[Shard]) -> None:
    """After step_accumulators(): parts get their part of whole state; theirs stays."""
    for shard in shards:
        for number, (whole, part) in enumerate(zip(shard.accumulators, shard.parts, strict=True)):
            replace(optimizer, whole, part, partial(shard.cut, number))


def replace(
    optimizer: torch.optim.Optimizer,
    old: nn.Parameter,
    new: nn.Parameter,
    converted: Callable[[Tensor], Tensor] | None = None,
    *,
    casts: bool = False,
) -> None:
    """Has the optimizer step another parameter, with the state of the one before.

    Args:
        converted: what becomes of state that has a number for each element.
        casts: such state gets the new one's dtype, if the old one's was another.
    """
    for group in optimizer.param_groups:
        group["params"][:] = [new if each is old else each for each in group["params"]]
    state: dict[str, Any] | None = optimizer.state.pop(old, None)
    if state is None:
        return

    def changed(key: str, value: Any) -> Any:
        if not is_like(key, value, old):
            return value
        made = value if converted is None else converted(value)
        retyped = casts and new.dtype != old.dtype and made.is_floating_point()
        return made.to(new.dtype) if retyped else made

    # A dict of its own: a state_dict() has the one before.
    optimizer.state[new] = {key: changed(key, value) for key, value in state.items()}


def is_like(key: Any, value: Any, parameter: Tensor) -> bool:
    """Whether a value of a parameter's state has a number for each element."""
    return key != "step" and isinstance(value, Tensor) and value.shape == parameter.shape
