"""Whether all ranks say the same lines: names of parameters, say, and what they are."""

from __future__ import annotations

import hashlib
from itertools import zip_longest

from corro._context import Group, exchange
from corro._objects import allgather_object
from corro.errors import MismatchError


def check_same_lines(group: Group, what: str, lines: list[str], name: str | None = None) -> None:
    """Raises MismatchError on every rank, beginning with `what`, unless all have the same lines.

    Blocks until every rank of the group has called it. One allgather of 8 bytes; the lines travel
    only to say which differ.
    """
    words = exchange(group, [digest("\n".join(lines))], name=name and f"{name}.digest")
    if len({row[0] for row in words}) == 1:
        return
    raise_difference(group, what, lines, name)


def raise_difference(group: Group, what: str, lines: list[str], name: str | None) -> None:
    """Raises MismatchError, which says which lines differ."""
    everyone = allgather_object(lines, name and f"{name}.lines", group=group)
    for rank, theirs in zip(group.ranks, everyone, strict=True):
        for first, other in zip_longest(everyone[0], theirs, fillvalue="nothing"):
            if first != other:
                numbers = f"{len(everyone[0])} and {len(theirs)}; "
                raise MismatchError(
                    f"{what}: {numbers if len(everyone[0]) != len(theirs) else ''}"
                    f"rank {group.ranks[0]} has {first} where rank {rank} has {other}"
                )


def digest(text: str) -> int:
    """Returns 64 bits of a hash, with a sign."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)
