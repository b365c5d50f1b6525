"""Making ranks equal, and sending objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cloudpickle
import torch

import corro.torch as verbs
from horovod.common.exceptions import raised_as_horovods
from horovod.common.process_sets import ProcessSet, global_process_set, member_group

if TYPE_CHECKING:
    from torch.nn import Module


def broadcast_parameters(
    params: Any, root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Fills model.state_dict(), model.named_parameters() or a list of tensors with the root's."""
    with raised_as_horovods():
        verbs.broadcast_parameters(
            params, root_rank, group=member_group(process_set, "broadcast_parameters")
        )


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Loads the root's optimizer state, hyperparameters included, on every rank.

    `model` is taken as Horovod takes it, and not needed: no state is made up to be filled.
    """
    del model
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    with raised_as_horovods():
        verbs.broadcast_optimizer_state(
            optimizer, root_rank, group=member_group(process_set, "broadcast_optimizer_state")
        )


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the root's object on every rank; whatever cloudpickle can write."""
    del name
    group = member_group(process_set, "broadcast_object")
    root = group.ranks[group.rank()] == root_rank
    with raised_as_horovods():
        data = verbs.broadcast_object(
            cloudpickle.dumps(obj) if root else b"", root_rank, group=group
        )
    return obj if root else cloudpickle.loads(data)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns every rank's object, in rank order; whatever cloudpickle can write."""
    del name
    group = member_group(process_set, "allgather_object")
    with raised_as_horovods():
        all_data = verbs.allgather_object(cloudpickle.dumps(obj), group=group)
    return [cloudpickle.loads(data) for data in all_data]
