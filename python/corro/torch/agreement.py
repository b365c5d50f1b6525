"""Whether all ranks have the same parameters: their names and shapes, and what is in them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from corro._agreement import check_same_lines, digest, raise_difference
from corro._context import Exchange, Group, exchange
from corro._objects import allgather_object
from corro.torch.memory_order import Order, memory_order

if TYPE_CHECKING:
    from types import FrameType

    from torch import Tensor

    from corro import _native

    NamedSets = Sequence[Sequence[tuple[str, Tensor]]]


def check_same_tensors(group: Group, caller: str, sets: NamedSets, name: str | None = None) -> None:
    """Raises MismatchError on every rank unless all have the same names, shapes and dtypes.

    Blocks until every rank of the group has called it, by this name if there is one. `caller` is
    what the user has called.
    """
    check_same_lines(group, f"{caller}: ranks have different parameters", _lines(sets), name)


def agreed_orders(group: Group, caller: str, sets: NamedSets) -> dict[int, Order]:
    """Returns the memory order in which each tensor travels, by its id: the same on all ranks.

    Otherwise as check_same_tensors(). Where ranks hold a tensor in different orders it is that of
    the group's first rank.
    """
    lines = _lines(sets)
    orders = [memory_order(tensor) for members in sets for _, tensor in members]
    words = exchange(group, [digest("\n".join(lines)), digest(repr(orders))])
    if len({row[0] for row in words}) > 1:
        raise_difference(group, f"{caller}: ranks have different parameters", lines, None)
    if len({row[1] for row in words}) > 1:
        orders = allgather_object(orders, group=group)[0]
    tensors = [tensor for members in sets for _, tensor in members]
    return {id(tensor): order for tensor, order in zip(tensors, orders, strict=True)}


class ValueCheck:
    """Warns once, on the group's first rank, if ranks begin with different values.

    That is what they do if nobody has broadcast them. Of each tensor the element in its middle
    is compared: what was drawn at random differs there. One allgather of 8 bytes, among the
    group's other operations, in the same place on every rank. Externally synchronized.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._word: int | None = None
        self._gathered: Exchange | None = None
        self._work: _native.Work | None = None

    def look(self, tensors: Iterable[Tensor]) -> None:
        """Looks at the values that are compared, the first time."""
        if self._word is None:
            middles = [t.detach()[tuple(n // 2 for n in t.shape)] for t in tensors if t.numel()]
            self._word = digest(repr([middle.item() + 0 for middle in middles]))  # -0. is 0.

    def start(self, tensors: Iterable[Tensor]) -> None:
        """Starts the comparison of what look() has seen; the second time it does nothing."""
        if self._gathered is not None:
            return
        self.look(tensors)
        assert self._word is not None
        gathered = Exchange(self._group, [self._word])
        submit, ops = self._group.native.submit, [gathered.op]
        # No signal comes between the next two: this rank has submitted it exactly if it says so.
        self._gathered = gathered
        self._work = submit(ops, gathered)

    def finish(self) -> None:
        """Blocks until what was started is done, and warns of a difference."""
        work = self._work
        if work is None or self._gathered is None:
            return
        try:
            work.wait()
        finally:
            if work.done():  # An interrupt ends the wait alone.
                self._work = None
        words = [row[0] for row in self._gathered.rows()]
        others = [r for r, word in zip(self._group.ranks, words, strict=True) if word != words[0]]
        if not others or self._group.rank() != 0:
            return
        names = f"rank{'s' if len(others) > 1 else ''} {', '.join(map(str, others[:8]))}"
        warnings.warn(
            f"DistributedOptimizer: at the first step parameters have other values on {names}"
            f"{' and more' if len(others) > 8 else ''} than on rank {self._group.ranks[0]}, and "
            "they will stay different: call broadcast_parameters(model.state_dict()) before "
            "training",
            stacklevel=users_level(),
        )


_NOT_USERS = ("corro", "torch", "contextlib", "copy")


def users_level() -> int:
    """Returns the stacklevel at which the caller's warning names the user's line."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _package(frame) in _NOT_USERS:
        frame, level = frame.f_back, level + 1
    return level


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _lines(sets: NamedSets) -> list[str]:
    lines = []
    for number, members in enumerate(sets):
        place = f" in group {number}" if len(sets) > 1 else ""
        for name, tensor in members:
            dtype = str(tensor.dtype).removeprefix("torch.")
            lines.append(f"{name} {dtype}{list(tensor.shape)}{place}")
    return lines
