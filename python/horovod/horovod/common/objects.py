"""Python objects between ranks: whatever cloudpickle can write."""

from __future__ import annotations

from typing import Any

import cloudpickle

from corro._objects import allgather_pickled, broadcast_pickled
from horovod.common.operations import own_name, running
from horovod.common.process_sets import ProcessSet, global_process_set


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the object of a rank of the world on every rank; others may give None. Blocks.

    InvalidArgumentError on every rank if it cannot be pickled.
    """
    own = own_name("broadcast_object", name, process_set)
    with running("broadcast_object", [own], process_set) as group:
        return broadcast_pickled(obj, root_rank, own, group, cloudpickle.dumps)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns every rank's object, in rank order; otherwise as broadcast_object()."""
    own = own_name("allgather_object", name, process_set)
    with running("allgather_object", [own], process_set) as group:
        return allgather_pickled(obj, own, group, cloudpickle.dumps)
