"""Python objects between ranks: as pickles, between the authenticated ranks of one job only."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import torch

from corro._context import Group, exchange, world_or
from corro.torch import verbs

if TYPE_CHECKING:
    from torch import Tensor


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, *, group: Group | None = None
) -> Any:
    """Returns the root's object on every rank; in any order, if it has a name."""
    group = world_or(group)
    root = is_root(group, root_rank)
    data = broadcast_bytes(pickle.dumps(obj) if root else b"", root_rank, group, name)
    return obj if root else pickle.loads(data)


def allgather_object(obj: Any, name: str | None = None, *, group: Group | None = None) -> list[Any]:
    """Returns every rank's object, in rank order; in any order of calls, if it has a name."""
    group = world_or(group)
    mine = _tensor_of(pickle.dumps(obj))
    lines = exchange(group, [mine.numel()], name=name and f"{name}.size")
    sizes = [line[0] for line in lines]
    parts = torch.split(verbs.allgather(mine, name, sizes=sizes, group=group), sizes)
    return [pickle.loads(part.numpy().tobytes()) for part in parts]


def is_root(group: Group, root_rank: int) -> bool:
    """Returns whether this process is that rank of the world."""
    return group.rank() == group.index_of(root_rank)


def _tensor_of(data: bytes) -> Tensor:
    return (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.empty(0, dtype=torch.uint8, device="cpu")
    )


def broadcast_bytes(data: bytes, root_rank: int, group: Group, name: str | None = None) -> bytes:
    """Returns the root's bytes on every rank; those of the others do not count."""
    sizes = exchange(group, [len(data)], name=name and f"{name}.size")
    size = sizes[group.index_of(root_rank)][0]
    tensor = (
        _tensor_of(data)
        if is_root(group, root_rank)
        else torch.empty(size, dtype=torch.uint8, device="cpu")
    )
    return bytes(verbs.broadcast_(tensor, root_rank, name, group=group).numpy().tobytes())
