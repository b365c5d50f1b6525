"""What a checkpoint holds of a state: a tree of plain values, and tensors that it refers to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from corro._plain import from_text, to_text
from corro.errors import InvalidArgumentError

if TYPE_CHECKING:
    from corro import _checkpoint

Form = tuple[int, Sequence[int]]  # dtype, shape
Share = Sequence[tuple[int, Sequence[int], Sequence[int]]]  # tensor, offsets, shape of a box
Boxes = list[tuple[str, int, Sequence[int], Sequence[int], Sequence[int]]]


class Contents:
    """A tree of plain values, as it goes into a checkpoint; without tensors."""

    def __init__(self, tree: Any) -> None:
        self.values = to_text(tree, self._take)

    def _take(self, path: str, value: Any) -> dict[str, Any] | None:
        """Returns the object that stands for the value in the tree, if it is a tensor."""
        del path, value
        return None

    def forms(self) -> list[Form]:
        """Returns dtype and shape of each tensor."""
        return []

    def boxes(self, share: Share) -> Boxes:
        """Returns the boxes of the share as Part() takes them."""
        del share
        return []

    def copy(self, share: Share, memory: memoryview, offsets: Sequence[int]) -> None:
        """Copies the boxes of the share to these offsets of the memory."""

    def read(self, opened: _checkpoint.Opened) -> Any:
        """Returns the tree of a checkpoint, with its tensors in host memory. Blocks."""
        return from_text(opened.values, _no_tensor)


def _no_tensor(_: object) -> Any:
    raise InvalidArgumentError("it holds tensors: load it into a TorchState")
