"""The user's optimizer steps offloaded shards one by one, so that the state of few is in memory.

    shard k - 1    is written
    shard k        is stepped, in memory
    shard k + 1    is read

One step() of the optimizer does it, so its hooks and those of schedulers run once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from corro.torch.parallel.sharded_optimizer import is_like

if TYPE_CHECKING:
    from corro.torch.parallel.offload import Offloaded
    from corro.torch.parallel.shards import Shard

_Parts = Sequence[nn.Parameter]


def step(optimizer: torch.optim.Optimizer, shards: Sequence[Shard]) -> None:
    """Steps the optimizer once. It has no gradients of offloaded shards behind it. Blocks."""
    away = [(each.offloaded, each.parts) for each in shards if each.offloaded is not None]
    if not away:
        optimizer.step()
        return
    # Behind the user's hooks, and before what is not offloaded.
    hook = optimizer.register_step_pre_hook(lambda *_: _step_each(optimizer, away))
    try:
        with away[0][0].storage.stepping():
            optimizer.step()
    finally:
        hook.remove()


def _step_each(optimizer: torch.optim.Optimizer, away: Sequence[tuple[Offloaded, _Parts]]) -> None:
    kind: Any = type(optimizer)
    plain = getattr(kind.step, "__wrapped__", kind.step)  # Without hooks.
    groups = optimizer.param_groups
    all_ = [group["params"] for group in groups]
    own = _by_shard(all_, [parts for _, parts in away])
    away[0][0].fetch()
    try:
        for (offloaded, parts), following, lists in zip_longest(away, away[1:], own):
            if following is not None:
                following[0].fetch()
            for group, parameters in zip(groups, lists, strict=True):
                group["params"] = parameters
            _bring(optimizer, offloaded, parts)
            plain(optimizer)
            _put_back(optimizer, offloaded, parts)
    finally:
        for group, parameters in zip(groups, all_, strict=True):
            group["params"] = parameters
    for offloaded, _ in away:
        offloaded.settle()


def _by_shard(groups: Sequence[_Parts], shards: Sequence[_Parts]) -> list[list[list[nn.Parameter]]]:
    """Returns for each shard what the optimizer's groups have of it."""
    numbers = {id(part): number for number, parts in enumerate(shards) for part in parts}
    own: list[list[list[nn.Parameter]]] = [[[] for _ in groups] for _ in shards]
    for place, parameters in enumerate(groups):
        for each in parameters:
            if (number := numbers.get(id(each))) is not None:
                own[number][place].append(each)
    return own


def _bring(optimizer: torch.optim.Optimizer, offloaded: Offloaded, parts: _Parts) -> None:
    """The parts, their gradients and their state are tensors in memory."""
    if offloaded.rows is not None:
        for part, row in zip(parts, offloaded.rows.take(), strict=True):
            part.data = row[: part.numel()]
    if offloaded.gradients is not None:
        for part, gradient in zip(parts, offloaded.gradients.take(), strict=True):
            part.grad = None if part.grad is None else gradient
    if offloaded.state is None:
        return
    there, memory = offloaded.state.tensors, offloaded.state.take()
    for (number, key), mapped, value in zip(offloaded.keys, there, memory, strict=True):
        state = optimizer.state.get(parts[number], {})
        # Else it was loaded, or is gone.
        if key in state and state[key].data_ptr() == mapped.data_ptr():
            state[key] = value


def _put_back(optimizer: torch.optim.Optimizer, offloaded: Offloaded, parts: _Parts) -> None:
    """They are tensors in files again; there are no gradients."""
    for part in parts:
        part.grad = None
    if offloaded.gradients is not None:
        offloaded.gradients.drop()
    if offloaded.rows is not None:
        for part, row in zip(parts, offloaded.rows.tensors, strict=True):
            part.data = row[: part.numel()]
        offloaded.rows.put()
    put_state_away(optimizer, offloaded, parts)


def put_state_away(optimizer: torch.optim.Optimizer, offloaded: Offloaded, parts: _Parts) -> None:
    """The parts' state is tensors in files: those that are not are written there."""
    states = [optimizer.state.get(part, {}) for part in parts]
    values: dict[tuple[int, Any], Tensor] = {
        (number, key): value
        for number, (part, state) in enumerate(zip(parts, states, strict=True))
        for key, value in state.items()
        if is_like(key, value, part)
    }
    if not values:
        return
    block = offloaded.state
    if block is None or offloaded.keys != list(values) or not block.fits(values.values()):
        block = offloaded.state = offloaded.storage.block(list(values.values()))
        offloaded.keys = list(values)
        memory = block.blank()
    else:
        memory = block.take()
    for (number, key), own, mapped in zip(values, memory, block.tensors, strict=True):
        if (value := values[number, key]).data_ptr() != own.data_ptr():
            own.copy_(value)
        states[number][key] = mapped
    block.put()
