"""Whether tensors fit a collective: the engine reads and writes through bare addresses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from corro import _native
from corro.errors import InvalidArgumentError

if TYPE_CHECKING:
    from torch import Tensor

    from corro._context import Group

VERBS = {
    _native.ALLREDUCE: "allreduce",
    _native.ALLGATHER: "allgather",
    _native.REDUCESCATTER: "reducescatter",
    _native.ALLTOALL: "alltoall",
    _native.BROADCAST: "broadcast",
    _native.REDUCE: "reduce",
    _native.GATHER: "gather",
    _native.SCATTER: "scatter",
    _native.BARRIER: "barrier",
    _native.SEND: "send",
    _native.RECV: "recv",
}


def check(
    kind: int,
    source: Tensor | None,
    target: Tensor | None,
    group: Group,
    count: int,
    counts: Sequence[int] | None,
    send_counts: Sequence[int] | None,
) -> None:
    """Raises InvalidArgumentError unless the tensors are of one dtype and as long as they have to.

    Args:
        kind: the engine's operation.
        source: what is read; None if this rank sends nothing.
        target: what is written; None if this rank receives nothing.
        group: the ranks that take part.
        count: elements of this rank's part.
        counts: elements of every rank's part of the joined tensor; None if all have count.
        send_counts: alltoall: elements for every rank.
    """
    verb, rank = VERBS[kind], group.rank()
    if source is not None and target is not None and source.dtype != target.dtype:
        raise InvalidArgumentError(
            f"{verb}: the output's dtype has to be the input's, {source.dtype}, not {target.dtype}"
        )
    if counts is None:
        counts = [count] * group.size()
    own = count if send_counts is None else send_counts[rank]
    if kind in (_native.ALLGATHER, _native.REDUCESCATTER, _native.ALLTOALL) and counts[rank] != own:
        raise InvalidArgumentError(
            f"{verb}: rank {rank}'s own part has {own} elements on one side but {counts[rank]} on"
            " the other"
        )
    joined = sum(counts)
    needed = {
        _native.ALLGATHER: (count, joined),
        _native.GATHER: (count, joined),
        _native.SCATTER: (joined, count),
        _native.REDUCESCATTER: (joined, count),
        _native.ALLTOALL: (sum(send_counts or ()), joined),
    }.get(kind, (count, count))
    for side, tensor, elements in zip(("input", "output"), (source, target), needed, strict=True):
        if tensor is not None and tensor.numel() != elements:
            raise InvalidArgumentError(
                f"{verb}: the {side} has {tensor.numel()} elements, but {elements} are needed"
            )


def check_parts(kind: int, parts: Sequence[Tensor], size: int, count: int | None) -> None:
    """Raises InvalidArgumentError unless there is one part for each rank, all of one dtype.

    Args:
        kind: the engine's operation.
        parts: the tensors that together are its input or its output.
        size: ranks in the group.
        count: elements of each part; None if they may differ.
    """
    verb = VERBS[kind]
    if len(parts) != size:
        raise InvalidArgumentError(
            f"{verb}: the list has {len(parts)} tensors, but {size} are needed, one for each rank"
        )
    for index, part in enumerate(parts):
        if part.dtype != parts[0].dtype:
            raise InvalidArgumentError(
                f"{verb}: the list's tensors have to be of one dtype: {parts[0].dtype} is the"
                f" first's, {part.dtype} that of number {index}"
            )
        if count is not None and part.numel() != count:
            raise InvalidArgumentError(
                f"{verb}: tensor {index} of the list has {part.numel()} elements, but {count} are"
                " needed"
            )


class Touched:
    """The memory that operations in flight together read and write."""

    def __init__(self) -> None:
        self._waiting: tuple[Sequence[Tensor], Sequence[Tensor]] | None = None
        self._read: list[tuple[int, int]] = []  # Sorted, and none meets another.
        self._written: list[tuple[int, int]] = []

    def add(self, reads: Sequence[Tensor], writes: Sequence[Tensor]) -> bool:
        """Adds an operation; False if it may not run beside those that were added before."""
        if self._waiting is None:  # Most often it stays alone: nothing is computed.
            self._waiting = reads, writes
            return True
        if not self._read and not self._written:
            self._note(*map(_ranges, self._waiting))
        read, written = _ranges(reads), _ranges(writes)
        if any(_meets(self._written, span) for span in read + written) or any(
            _meets(self._read, span) for span in written
        ):
            return False
        self._note(read, written)
        return True

    def _note(self, read: list[tuple[int, int]], written: list[tuple[int, int]]) -> None:
        for span in read:
            _insert(self._read, span)
        for span in written:
            _insert(self._written, span)


def _ranges(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    """Returns where each tensor's memory begins and ends, gaps between its elements included."""
    spans = []
    for tensor in tensors:
        if tensor.numel() > 0:
            steps = zip(tensor.shape, tensor.stride(), strict=True)
            last = sum((count - 1) * stride for count, stride in steps)
            begin = tensor.data_ptr()
            spans.append((begin, begin + (last + 1) * tensor.element_size()))
    return spans


def _meets(spans: Sequence[tuple[int, int]], span: tuple[int, int]) -> bool:
    before = bisect_left(spans, (span[1], 0))  # The first that begins where the span is over.
    return before > 0 and spans[before - 1][1] > span[0]


def _insert(spans: list[tuple[int, int]], span: tuple[int, int]) -> None:
    begin, end = span
    first = bisect_left(spans, (begin, 0))
    if first > 0 and spans[first - 1][1] >= begin:
        first -= 1
    last = bisect_left(spans, (end + 1, 0))
    if first < last:
        begin, end = min(begin, spans[first][0]), max(end, spans[last - 1][1])
    spans[first:last] = [(begin, end)]
