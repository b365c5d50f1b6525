"""What one call of torch's, or one coalescing manager, hands to the engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from corro import _native
from corro._context import Group
from corro.torch import arithmetic, extents, sparse
from corro.torch.verbs import DTYPES, fill, host_like, is_host, to_host, type_name

if TYPE_CHECKING:
    from torch import Tensor

    from corro.torch.works import CorroWork

# Operations whose tensors have one shape on all ranks.
_WHOLE = (_native.ALLREDUCE, _native.BROADCAST, _native.REDUCE)


class Batch:
    """Operations that the engine may have in flight together, and the copies around them."""

    def __init__(self) -> None:
        self.ops: list[_native.Op] = []
        self.before: list[Callable[[], object]] = []
        self.after: list[Callable[[], None]] = []
        self.buffers: list[Tensor | None] = []

    def copy_in(self) -> None:
        for step in self.before:
            step()

    def run(self, group: Group) -> None:
        """Carries everything out on this thread."""
        for step in self.before:
            step()
        group.native.run(self.ops, self.buffers)
        for step in self.after:
            step()


class Unit:
    """The engine's operations for one collective, or for those that torch coalesces.

    The engine starts operations in order, but has many in flight. One that touches memory which an
    earlier one writes, or writes what an earlier one touches, begins a new batch: a batch begins
    once the one before is over. So a tensor that is given twice is reduced twice.
    """

    def __init__(self, group: Group, timeout: float | None) -> None:
        self.batches = [Batch()]
        self.work: CorroWork | None = None  # Of several collectives that torch coalesces.
        self.is_transfer = False  # It sends or receives: a barrier must not wait for that.
        self._group = group
        self._timeout = timeout
        # Most units have one operation on host memory; what others need is made when they come.
        self._touched: extents.Touched | None = None  # By the last batch.
        self._next: Batch | None = None  # The copies around the next operation, and
        self._first: tuple[list[Tensor], list[Tensor]] = ([], [])  # As the next two, of the first.
        self._reads: list[Tensor] = []  # which of torch's tensors it reads and
        self._writes: list[Tensor] = []  # writes.

    def add(
        self,
        kind: int,
        source: Tensor | None,
        target: Tensor | None,
        *,
        count: int = 0,
        counts: Sequence[int] | None = None,
        send_counts: Sequence[int] | None = None,
        root: int = 0,
        tag: int = 0,
        op: Any = None,
    ) -> None:
        """Adds an operation on host tensors; counts are elements, op is torch's reduction."""
        like = source if source is not None else target
        if source is not target:
            extents.check(kind, source, target, self._group, count, counts, send_counts)
        (dtype, width), reduce_op, factor = (_native.U8, 1), _native.SUM, 1.0
        element = None
        if op is not None:
            reduce_op, factor = arithmetic.reduction(op)
        if like is not None:
            known = DTYPES.get(like.dtype)
            if known is not None:
                dtype = known
            else:
                element = type_name(like)
                if op is not None:
                    dtype, width = arithmetic.reducible(like, reduce_op, extents.VERBS[kind])
                else:
                    dtype, width = arithmetic.movable(like)
        native = _native.Op(
            kind=kind,
            dims=tuple(like.shape) if like is not None and kind in _WHOLE else None,
            dtype=dtype,
            reduce_op=reduce_op,
            prescale=factor,
            root=root,
            tag=tag,
            input=source.data_ptr() if source is not None else 0,
            output=target.data_ptr() if target is not None else 0,
            count=count * width,
            counts=None if counts is None else [n * width for n in counts],
            send_counts=None if send_counts is None else [n * width for n in send_counts],
            timeout=self._timeout,
            element=element,
        )
        batch = self._batch(kind)
        batch.ops.append(native)
        batch.buffers += (source, target)

    def add_allreduce(self, tensor: Tensor, op: Any) -> None:
        """Adds the reduction of a tensor of torch's, in place; op is torch's reduction."""
        fold = arithmetic.BITWISE.get(op.op)
        if tensor.layout != torch.strided:
            sparse.add_allreduce(self, self._group, tensor, op)
        elif fold is not None:
            source, parts = self.source(tensor), self.folded(tensor, fold)
            self.add(_native.ALLGATHER, source, parts, count=source.numel())
        else:
            host = self.updated(tensor)
            self.add(_native.ALLREDUCE, host, host, count=host.numel(), op=op)

    def _batch(self, kind: int) -> Batch:
        """Returns the batch for an operation on what was named since the last one."""
        if kind in (_native.SEND, _native.RECV):  # These keep no order.
            self.is_transfer = True
        elif self._touched is not None or self.batches[0].ops:
            self._begin_batch_after_conflict()
        else:
            self._first = self._reads, self._writes
        batch, following = self.batches[-1], self._next
        if following is not None:
            batch.before += following.before
            batch.after += following.after
            self._next = None
        self._reads, self._writes = [], []
        return batch

    def _begin_batch_after_conflict(self) -> None:
        if self._touched is None:
            self._touched = extents.Touched()
            self._touched.add(*self._first)
        if not self._touched.add(self._reads, self._writes):
            self.batches.append(Batch())
            self._touched = extents.Touched()
            self._touched.add(self._reads, self._writes)

    def _around(self) -> Batch:
        if self._next is None:
            self._next = Batch()
        return self._next

    def source(self, tensor: Tensor) -> Tensor:
        """Returns host memory that has the tensor's content once the operation starts."""
        self._reads.append(tensor)
        if is_host(tensor):
            return tensor
        host = host_like(tensor, tensor.shape)
        self._around().before.append(lambda: fill(host, tensor))
        return host

    def target(self, tensor: Tensor) -> Tensor:
        """Returns host memory that the tensor gets after the operation: its own if possible."""
        self._writes.append(tensor)
        if is_host(tensor):
            return tensor
        host = host_like(tensor, tensor.shape)
        self._around().after.append(lambda: _copy(tensor, host))
        return host

    def updated(self, tensor: Tensor) -> Tensor:
        """As target, but with the tensor's content in it."""
        if is_host(tensor):
            self._writes.append(tensor)
            return tensor
        host = self.target(tensor)
        self._around().before.append(lambda: fill(host, tensor))
        return host

    def after(self, step: Callable[[], None]) -> None:
        """Notes what follows the next operation."""
        self._around().after.append(step)

    def folded(self, tensor: Tensor, fold: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Returns host memory for every rank's tensor, which are folded into the tensor."""
        self._writes.append(tensor)
        parts = host_like(tensor, (self._group.size(), *tensor.shape))
        self._around().after.append(lambda: _copy(tensor, functools.reduce(fold, parts)))
        return parts

    def joined(self, kind: int, tensors: Sequence[Tensor], count: int | None = None) -> Tensor:
        """Returns flat host memory for every rank's tensor, of count elements if given."""
        extents.check_parts(kind, tensors, self._group.size(), count)
        self._reads += tensors
        flat = host_like(tensors[0], (sum(tensor.numel() for tensor in tensors),))

        def copy() -> None:
            with torch.no_grad():
                torch.cat([to_host(tensor).reshape(-1) for tensor in tensors], out=flat)

        self._around().before.append(copy)
        return flat

    def scattered(self, kind: int, tensors: Sequence[Tensor], count: int | None = None) -> Tensor:
        """As joined, but its parts are what the tensors get after the operation."""
        extents.check_parts(kind, tensors, self._group.size(), count)
        self._writes += tensors
        sizes = [tensor.numel() for tensor in tensors]
        flat = host_like(tensors[0], (sum(sizes),))
        parts = torch.split(flat, sizes)

        def copy() -> None:
            for tensor, part in zip(tensors, parts, strict=True):
                _copy(tensor, part.view(tensor.shape))

        self._around().after.append(copy)
        return flat


def _copy(tensor: Tensor, host: Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(host)
