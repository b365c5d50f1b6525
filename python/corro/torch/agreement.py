"""Whether all ranks have the same tensors, before those are used by their places."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from corro._context import Group, exchange
from corro.errors import MismatchError
from corro.torch.objects import allgather_object

if TYPE_CHECKING:
    from torch import Tensor

    NamedSets = Sequence[Sequence[tuple[str, Tensor]]]


def check_same_tensors(group: Group, caller: str, sets: NamedSets) -> None:
    """Raises MismatchError on every rank unless all have the same names, shapes and dtypes.

    Blocks until every rank of the group has called it. One allgather of 8 bytes; the names travel
    only to say which differ. `caller` is what the user has called.
    """
    lines = _lines(sets)
    digest = hashlib.sha256("\n".join(lines).encode()).digest()[:8]
    word = int.from_bytes(digest, "little", signed=True)
    if len({row[0] for row in exchange(group, [word])}) == 1:
        return
    everyone = allgather_object(lines, group=group)
    for rank, theirs in zip(group.ranks, everyone, strict=True):
        for first, other in zip_longest(everyone[0], theirs, fillvalue="nothing"):
            if first != other:
                raise MismatchError(
                    f"{caller}: ranks have different parameters: "
                    f"rank {group.ranks[0]} has {first} where rank {rank} has {other}"
                )


def _lines(sets: NamedSets) -> list[str]:
    lines = []
    for number, members in enumerate(sets):
        place = f" in group {number}" if len(sets) > 1 else ""
        for name, tensor in members:
            dtype = str(tensor.dtype).removeprefix("torch.")
            lines.append(f"{name} {dtype}{list(tensor.shape)}{place}")
    return lines
