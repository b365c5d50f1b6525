"""Making ranks equal, and sending objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cloudpickle
import torch

import corro.torch as verbs
from corro._objects import allgather_pickled, broadcast_pickled
from corro.torch.optimizer_state import broadcast_state
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.mpi_ops import own_name, running

if TYPE_CHECKING:
    from torch.nn import Module


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


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the root's object on every rank; whatever cloudpickle can write."""
    own = own_name("broadcast_object", name, process_set)
    with running("broadcast_object", [own], process_set) as group:
        return broadcast_pickled(obj, root_rank, own, group, cloudpickle.dumps)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns every rank's object, in rank order; whatever cloudpickle can write."""
    own = own_name("allgather_object", name, process_set)
    with running("allgather_object", [own], process_set) as group:
        return allgather_pickled(obj, own, group, cloudpickle.dumps)
