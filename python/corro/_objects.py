"""Bytes that one rank makes and all ranks get.

What cannot be made is an error on every rank, which names the rank: none waits for what never
comes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from corro import _arguments
from corro._context import Group, exchange
from corro.errors import InvalidArgumentError


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
    data, refusal = made(caller, make, root_rank) if group.rank() == root else (b"", None)
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


def made(caller: str, make: Callable[[], bytes], rank: int) -> tuple[bytes, Exception | None]:
    """Returns the bytes; if they cannot be made, what to tell all ranks, and the reason."""
    try:
        return make(), None
    except Exception as error:  # Pickling runs methods of anything's.
        told = (
            str(error) if isinstance(error, InvalidArgumentError) else f"cannot send it: {error!r}"
        )
        return f"{caller}: rank {rank} {told}".encode(errors="replace"), error
