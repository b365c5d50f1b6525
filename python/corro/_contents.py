"""What a checkpoint holds of a state: a tree of plain values, and tensors that it refers to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corro._plain import from_text, to_text
from corro.errors import InvalidArgumentError

if TYPE_CHECKING:
    from corro import _checkpoint
    from corro._context import Group


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tensor, of which this rank takes care: each element of a tensor is in one."""

    name: str
    dtype: int
    whole: Sequence[int]  # The shape of the whole tensor.
    offsets: Sequence[int]
    shape: Sequence[int]
    source: Any  # The box as its tensor has it.

    @property
    def box(self) -> tuple[str, int, Sequence[int], Sequence[int], Sequence[int]]:
        """It as Part() takes it."""
        return self.name, self.dtype, self.whole, self.offsets, self.shape


class Contents:
    """A tree of plain values, as it goes into a checkpoint; without tensors."""

    def __init__(self, tree: Any) -> None:
        self.values = to_text(tree, self._take)

    def _take(self, path: str, value: Any) -> dict[str, Any] | None:
        """Returns the object that stands for the value in the tree, if it is a tensor."""
        del path, value
        return None

    def pieces(self, group: Group) -> list[Piece]:
        """Returns what this rank of the group has to write. All ranks call it."""
        del group
        return []

    def copy(self, pieces: Sequence[Piece], memory: memoryview, offsets: Sequence[int]) -> None:
        """Copies the pieces to these offsets of the memory."""


def read(opened: _checkpoint.Opened) -> Any:
    """Returns the tree of a checkpoint that has no tensors. Blocks."""
    return from_text(opened.values, _no_tensor)


def _no_tensor(_: str, __: object) -> Any:
    raise InvalidArgumentError("it holds tensors: load it into a TorchState")
