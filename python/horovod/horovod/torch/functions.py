"""Making ranks equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cloudpickle
import torch

import corro.torch as verbs
from corro.torch.optimizer_state import broadcast_state
from horovod.common.objects import allgather_object, broadcast_object
from horovod.common.operations import own_name, running
from horovod.common.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]


def broadcast_parameters(
    params: Any, root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Fills model.state_dict(), model.named_parameters() or a list of tensors with the root's."""
    own = own_name("broadcast_parameters", None, process_set)
    with running("broadcast_parameters", [own], process_set) as group:
        verbs.broadcast_parameters(params, root_rank, own, group=group)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Makes every rank's optimizer have the root's state, hyperparameters included, in place.

    `model` is taken as Horovod takes it, and not needed: no state is made up to be filled.
    """
    del model
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    own = own_name("broadcast_optimizer_state", None, process_set)
    with running("broadcast_optimizer_state", [own], process_set) as group:
        broadcast_state(optimizer, root_rank, own, group, cloudpickle.Pickler)
