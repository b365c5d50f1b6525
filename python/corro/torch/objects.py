"""Python objects between ranks: as pickles, between the authenticated ranks of one job only.

An object that cannot be pickled is an error on every rank, which names the rank that has it: none
waits for what never comes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from corro._context import Group, exchange, world_or
from corro._objects import broadcast_bytes, is_root, made
from corro.errors import InvalidArgumentError
from corro.torch import verbs

if TYPE_CHECKING:
    from torch import Tensor

Dumps = Callable[[Any], bytes]


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, *, group: Group | None = None
) -> Any:
    """Returns the root's object on every rank; in any order, if it has a name.

    InvalidArgumentError on every rank if it cannot be pickled.
    """
    return broadcast_pickled(obj, root_rank, name, world_or(group), pickle.dumps)


def allgather_object(obj: Any, name: str | None = None, *, group: Group | None = None) -> list[Any]:
    """Returns every rank's object, in rank order; in any order of calls, if it has a name.

    InvalidArgumentError on every rank if one cannot be pickled.
    """
    return allgather_pickled(obj, name, world_or(group), pickle.dumps)


def broadcast_pickled(
    obj: Any, root_rank: int, name: str | None, group: Group, dumps: Dumps
) -> Any:
    """broadcast_object() of what `dumps` can write."""
    data = broadcast_bytes("broadcast_object", lambda: dumps(obj), root_rank, group, name)
    return obj if is_root(group, root_rank) else pickle.loads(data)


def allgather_pickled(obj: Any, name: str | None, group: Group, dumps: Dumps) -> list[Any]:
    """allgather_object() of what `dumps` can write."""
    data, refusal = made("allgather_object", lambda: dumps(obj), group.ranks[group.rank()])
    mine = _tensor_of(data)
    rows = exchange(group, [mine.numel(), refusal is not None], name=name and f"{name}.size")
    sizes = [size for size, _ in rows]
    gathered = verbs.allgather(mine, name, sizes=sizes, group=group)
    parts = [part.numpy().tobytes() for part in torch.split(gathered, sizes)]
    for part, (_, refused) in zip(parts, rows, strict=True):
        if refused:
            raise InvalidArgumentError(part.decode()) from refusal
    return [pickle.loads(part) for part in parts]


def _tensor_of(data: bytes) -> Tensor:
    return (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.empty(0, dtype=torch.uint8, device="cpu")
    )
