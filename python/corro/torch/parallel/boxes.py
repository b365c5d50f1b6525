"""Where the elements that a rank has of a parameter lie in it: as boxes, which all plans have.

A rank has a run of a parameter's elements (ZeRO), or of its part of a parameter (tensor
parallelism), flat. In the whole parameter that is a few boxes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from corro.torch.parallel.tensor.division import Division

Box = tuple[list[int], Tensor]
"""Where it begins in each dim, and its elements, as a view."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive elements of a parameter, or of this rank's part of it, in row-major order."""

    whole: tuple[int, ...]
    """The parameter's shape."""
    run: range
    division: Division | None = None
    """None: of the parameter."""

    def boxes(self, flat: Tensor) -> Iterator[Box]:
        """Yields the boxes of a flat tensor that has these elements."""
        if self.division is None:
            yield from _boxes(self.whole, self.run.start, flat)
            return
        dim, blocks = self.division.dim, self.division.blocks
        own, block = self.division.own // blocks, self.division.length // blocks
        shape = [*self.whole[:dim], blocks, own, *self.whole[dim + 1 :]]
        for offsets, box in _boxes(shape, self.run.start, flat):
            for number in range(box.shape[dim]):
                first = (offsets[dim] + number) * block + self.division.start + offsets[dim + 1]
                yield [*offsets[:dim], first, *offsets[dim + 2 :]], box.select(dim, number)


def _boxes(shape: Sequence[int], begin: int, flat: Tensor) -> Iterator[Box]:
    """Yields the boxes of elements of a row-major array, from number `begin` on."""
    if len(shape) == 1 or not flat.numel():
        yield from [([begin], flat)] * bool(flat.numel())
        return
    inner = shape[1:]
    row = prod(inner)
    first, skipped = divmod(begin, row)
    head = min(-begin % row, flat.numel())
    for offsets, box in _boxes(inner, skipped, flat[:head]):
        yield [first, *offsets], box.unsqueeze(0)
    first += bool(head)
    rows = (flat.numel() - head) // row
    end = head + rows * row
    if rows:
        yield [first, *[0] * len(inner)], flat[head:end].view(rows, *inner)
    for offsets, box in _boxes(inner, 0, flat[end:]):
        yield [first + rows, *offsets], box.unsqueeze(0)


@lru_cache(maxsize=256)  # Layers are alike.
def covered(boxes: frozenset[tuple[tuple[int, ...], tuple[int, ...]]]) -> int:
    """Returns how many elements are in at least one of the boxes: where each begins, and lengths.

    They may overlap.
    """
    if not boxes:
        return 0
    if not next(iter(boxes))[0]:
        return 1
    edges = sorted({edge for (begin, *_), (n, *_) in boxes for edge in (begin, begin + n)})
    return sum(
        (end - first)
        * covered(
            frozenset(
                (begin[1:], lengths[1:])
                for begin, lengths in boxes
                if begin[0] <= first and end <= begin[0] + lengths[0]
            )
        )
        for first, end in pairwise(edges)
    )
