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
    data, refusal = _made("allgather_object", lambda: dumps(obj), group.ranks[group.rank()])
    mine = _tensor_of(data)
    rows = exchange(group, [mine.numel(), refusal is not None], name=name and f"{name}.size")
    sizes = [size for size, _ in rows]
    gathered = verbs.allgather(mine, name, sizes=sizes, group=group)
    parts = [part.numpy().tobytes() for part in torch.split(gathered, sizes)]
    for part, (_, refused) in zip(parts, rows, strict=True):
        if refused:
            raise InvalidArgumentError(part.decode()) from refusal
    return [pickle.loads(part) for part in parts]


def is_root(group: Group, root_rank: int) -> bool:
    """Returns whether this process is that rank of the world."""
    return group.rank() == group.index_of(root_rank)


def broadcast_bytes(
    caller: str, make: Callable[[], bytes], root_rank: int, group: Group, name: str | None
) -> bytes:
    """Returns on every rank what the root makes; if that fails, InvalidArgumentError on every rank.

    `caller` is what the user has called.
    """
    root = is_root(group, root_rank)
    data, refusal = _made(caller, make, root_rank) if root else (b"", None)
    rows = exchange(group, [len(data), refusal is not None], name=name and f"{name}.size")
    size, refused = rows[group.index_of(root_rank)]
    tensor = _tensor_of(data) if root else torch.empty(size, dtype=torch.uint8, device="cpu")
    data = bytes(verbs.broadcast_(tensor, root_rank, name, group=group).numpy().tobytes())
    if refused:
        raise InvalidArgumentError(data.decode()) from refusal
    return data


def _made(caller: str, make: Callable[[], bytes], rank: int) -> tuple[bytes, Exception | None]:
    """Returns the bytes; if they cannot be made, what to tell all ranks, and the reason."""
    try:
        return make(), None
    except Exception as error:  # Pickling runs methods of anything's.
        told = (
            str(error) if isinstance(error, InvalidArgumentError) else f"cannot send it: {error!r}"
        )
        return f"{caller}: rank {rank} {told}".encode(errors="replace"), error


def _tensor_of(data: bytes) -> Tensor:
    return (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.empty(0, dtype=torch.uint8, device="cpu")
    )
