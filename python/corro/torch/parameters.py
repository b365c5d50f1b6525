"""Making ranks equal: parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from corro._calls import Call
from corro._context import Group, world_or
from corro.errors import InvalidArgumentError
from corro.torch import verbs
from corro.torch.agreement import check_same_tensors

if TYPE_CHECKING:
    from torch import Tensor

Parameters = Mapping[str, Any] | Iterable["Tensor | tuple[str, Tensor]"]


def broadcast_parameters(
    params: Parameters,
    root_rank: int = 0,
    name: str | None = None,
    *,
    group: Group | None = None,
) -> None:
    """Fills the tensors on every rank with the root's, as one unit.

    MismatchError on every rank, naming the first that differs, unless all have the same names,
    shapes and dtypes in the same order (a dict's is that of its keys).

    Args:
        params: model.state_dict(), model.named_parameters() or a list of tensors; values of other
            types are left alone.
        root_rank: whose values all get.
        name: of the whole: its place among the group's other operations may then differ by rank.
        group: the ranks that take part; the world if not given.
    """
    if isinstance(params, torch.nn.Module):
        raise InvalidArgumentError(
            "params has to be the state_dict() or named_parameters() of the module, not the module"
        )
    if isinstance(params, Mapping) and params.keys() >= {"state", "param_groups"}:
        raise InvalidArgumentError(
            "params is an optimizer's state: use broadcast_optimizer_state(optimizer)"
        )
    wrong = InvalidArgumentError("params has to be a dict, or a list of tensors or (name, tensor)")
    if not isinstance(params, Iterable):
        raise wrong
    pairs: Iterable[Any] = sorted(params.items()) if isinstance(params, Mapping) else params
    named = [
        pair if isinstance(pair, tuple) and len(pair) == 2 else (f"tensor {i}", pair)
        for i, pair in enumerate(pairs)
    ]
    if not isinstance(params, Mapping) and not all(isinstance(v, torch.Tensor) for _, v in named):
        raise wrong
    group = world_or(group)
    tensors = [(name, value) for name, value in named if isinstance(value, torch.Tensor)]
    check_same_tensors(group, "broadcast_parameters", [tensors], name)
    if tensors:
        calls = [
            verbs.calls.broadcast_(t, root_rank, name and f"{name}.{i}", group=group)
            for i, (_, t) in enumerate(tensors)
        ]
        Call.joined(calls).run()
