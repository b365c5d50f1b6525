"""Bytes that one rank makes, or each one, and all ranks get; and Python objects as such bytes.

What cannot be made is an error on every rank, which names the rank: none waits for what never
comes. Objects travel as pickles, between the authenticated ranks of one job only.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from corro import _arguments
from corro._context import Group, exchange, world_or
from corro.errors import InvalidArgumentError

Dumps = Callable[[Any], bytes]


def is_root(group: Group, root_rank: int) -> bool:
    """Returns whether this process is that rank of the world."""
    return group.rank() == group.index_of(root_rank)


def broadcast_bytes(
    caller: str,
    make: Callable[[], bytes],
    root_rank: int,
    group: Group,
    name: str | None = None,
) -> bytes:
    """Returns on every rank what the root makes; if that fails, InvalidArgumentError on every rank.

    `caller` is what the user has called. With a name its place among the group's other operations
    may differ by rank.
    """
    from corro import _native

    root = group.index_of(root_rank)
    data, refusal = _made(caller, make, root_rank) if group.rank() == root else (b"", None)
    rows = exchange(group, [len(data), refusal is not None], name=name and f"{name}.size")
    size, refused = rows[root]
    memory = array("B", data if group.rank() == root else bytes(size))
    address, _ = memory.buffer_info()
    op = _native.Op(
        kind=_native.BROADCAST,
        dtype=_native.U8,
        root=root,
        input=address,
        output=address,
        count=size,
        name=_arguments.name("name", name),
    )
    group.native.run([op], memory, name is not None)
    data = memory.tobytes()
    if refused:
        raise InvalidArgumentError(data.decode()) from refusal
    return data


def allgather_bytes(
    caller: str, make: Callable[[], bytes], group: Group, name: str | None = None
) -> list[bytes]:
    """Returns what each rank makes, in rank order; otherwise as broadcast_bytes()."""
    data, refusal = _made(caller, make, group.ranks[group.rank()])
    rows = exchange(group, [len(data), refusal is not None], name=name and f"{name}.size")
    parts = gathered(data, [size for size, _ in rows], group, name)
    for part, (_, refused) in zip(parts, rows, strict=True):
        if refused:
            raise InvalidArgumentError(part.decode()) from refusal
    return parts


def gathered(own: bytes, sizes: Sequence[int], group: Group, name: str | None) -> list[bytes]:
    """Returns every rank's bytes, of which each rank knows how many they are."""
    from corro import _native

    mine, every = array("B", own), array("B", bytes(sum(sizes)))
    op = _native.Op(
        kind=_native.ALLGATHER,
        dtype=_native.U8,
        input=mine.buffer_info()[0],
        output=every.buffer_info()[0],
        count=len(own),
        counts=list(sizes),
        name=_arguments.name("name", name),
    )
    group.native.run([op], (mine, every), name is not None)
    ends = accumulate(sizes)
    return [every[end - size : end].tobytes() for size, end in zip(sizes, ends, strict=True)]


def _made(caller: str, make: Callable[[], bytes], rank: int) -> tuple[bytes, Exception | None]:
    """Returns the bytes; if they cannot be made, what to tell all ranks, and the reason."""
    try:
        return make(), None
    except Exception as error:  # Pickling runs methods of anything's.
        told = (
            str(error) if isinstance(error, InvalidArgumentError) else f"cannot send it: {error!r}"
        )
        return f"{caller}: rank {rank} {told}".encode(errors="replace"), error


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, *, group: Group | None = None
) -> Any:
    """Returns the root's object on every rank, sent as a pickle; others may give None. Blocks.

    With a name ranks may call in any order. InvalidArgumentError on every rank if the object cannot
    be pickled.
    """
    import pickle

    return broadcast_pickled(obj, root_rank, name, world_or(group), pickle.dumps)


def allgather_object(obj: Any, name: str | None = None, *, group: Group | None = None) -> list[Any]:
    """Returns every rank's object, in rank order; otherwise as broadcast_object()."""
    import pickle

    return allgather_pickled(obj, name, world_or(group), pickle.dumps)


def broadcast_pickled(
    obj: Any, root_rank: int, name: str | None, group: Group, dumps: Dumps
) -> Any:
    """broadcast_object() of what `dumps` can write."""
    import pickle

    data = broadcast_bytes("broadcast_object", lambda: dumps(obj), root_rank, group, name)
    return obj if is_root(group, root_rank) else pickle.loads(data)


def allgather_pickled(obj: Any, name: str | None, group: Group, dumps: Dumps) -> list[Any]:
    """allgather_object() of what `dumps` can write."""
    import pickle

    parts = allgather_bytes("allgather_object", lambda: dumps(obj), group, name)
    return [pickle.loads(part) for part in parts]
