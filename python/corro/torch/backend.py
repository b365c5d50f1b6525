"""The torch.distributed back end "corro", for DDP, FSDP2, DeviceMesh and distributed checkpoints.

The operations are written once (Collectives); torch finds them through a subclass of Backend where
Python can override it (torch 2.15), of ProcessGroup before.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import Backend as BackendNames  # noqa: F401  # Loads torch.distributed.
from torch.distributed.distributed_c10d import default_pg_timeout

from corro import _context, _native
from corro._completion import Completions
from corro._context import Context, Group
from corro._native import Work as NativeWork
from corro.errors import (
    CorroError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    TimeoutError,
    UnimplementedError,
)
from corro.torch import extents
from corro.torch.store import TorchStore, timeout_of_environment
from corro.torch.verbs import DTYPES, host_like, is_host, to_host

if TYPE_CHECKING:
    from torch import Tensor

_REDUCE_OPS = {
    c10d.ReduceOp.SUM: _native.SUM,
    c10d.ReduceOp.AVG: _native.AVERAGE,
    c10d.ReduceOp.MIN: _native.MIN,
    c10d.ReduceOp.MAX: _native.MAX,
    c10d.ReduceOp.PRODUCT: _native.PRODUCT,
}
_BITWISE = {
    c10d.ReduceOp.BAND: torch.bitwise_and,
    c10d.ReduceOp.BOR: torch.bitwise_or,
    c10d.ReduceOp.BXOR: torch.bitwise_xor,
}
_NO_TIME = timedelta(0)
# Works whose tensors are kept although nobody may ask for them any more; before torch 2.15 only.
_RESULTS_KEPT = 16
# A complex number's real and imaginary part.
_PARTS = {
    torch.complex32: _native.F16,
    torch.complex64: _native.F32,
    torch.complex128: _native.F64,
}


# Operations whose tensors have one shape on all ranks.
_WHOLE = (_native.ALLREDUCE, _native.BROADCAST, _native.REDUCE)


class CorroWork(c10d.Work):
    """Operations in the background, and the copies that follow them. Thread-safe."""

    # Those that are done from the start, as most are, keep these: making them costs time.
    _native: NativeWork | None = None
    _after: Sequence[Callable[[], None]] = ()
    _lock = threading.RLock()
    _error: BaseException | None = None
    _future: Any = None
    _asked = True  # Somebody has waited.
    _earlier: Sequence[CorroWork] = ()  # A barrier's: it is over when they are.
    _unfinished: dict[CorroWork, None] = {}  # noqa: RUF012  # What it is in while it is not over.

    def __init__(self, completions: Completions, result: list[Tensor]) -> None:
        super().__init__()
        self._completions = completions
        self._result = result

    def begin(
        self,
        native: NativeWork,
        after: list[Callable[[], None]],
        unfinished: dict[CorroWork, None] | None,
    ) -> None:
        """From now on wait() waits for `native` and then calls each of `after`, once.

        Until that is known to be over, the work is in `unfinished`.
        """
        self._after, self._lock, self._asked = after, threading.RLock(), False
        self._native = native
        if unfinished is not None:
            self._unfinished = unfinished
            for oldest in list(islice(unfinished, 2)):  # More than one: none pile up.
                if oldest.is_finished():
                    unfinished.pop(oldest, None)
            unfinished[self] = None

    def wait_for(self, earlier: Sequence[CorroWork]) -> None:
        """From now on wait() also waits for these works, whose errors stay theirs."""
        self._earlier = earlier

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Blocks until the result is there; raises what the operation failed with."""
        self._asked = True
        self._finish(timeout.total_seconds() or None)
        if self._error is not None:
            raise self._error
        return True

    def finish(self) -> None:
        """Blocks until nothing is left to do; what it failed with is for those who wait()."""
        with suppress(CorroError):
            self._finish(None)

    def _finish(self, seconds: float | None) -> None:
        native = self._native  # Another thread's _conclude() may take it away.
        if native is not None:
            if not native.done():
                self._completions.hand_on()
            try:
                native.wait(seconds)
            finally:
                if native.done():
                    self._unfinished.pop(self, None)
            self._conclude()
        for work in self._earlier:
            work.finish()
        self._earlier = ()

    def is_completed(self) -> bool:
        """Returns whether wait() would return at once."""
        native = self._native
        return (native is None or native.done()) and all(w.is_completed() for w in self._earlier)

    def is_finished(self) -> bool:
        """Returns whether nothing is left to do, not even a copy."""
        native = self._native
        return native is None or (not self._after and native.done())

    def is_success(self) -> bool:
        """Returns whether it is done and has not failed."""
        if not self.is_completed():
            return False
        try:
            return self.wait()
        except CorroError:
            return False

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def result(self) -> list[Tensor]:
        """Returns the output tensors."""
        return self._result

    def get_future(self) -> Any:
        """Returns a future of the output tensors, completed by the engine's Python thread.

        If the operation fails, its wait() raises a RuntimeError with the text of the error.
        """
        with self._lock:  # One for all who ask: the engine tells of a work's end once.
            if self._future is None:
                self._future = self._make_future()
        return self._future

    def _make_future(self) -> Any:
        devices: Any = sorted({str(t.device) for t in self._result if t.is_cuda}) or None
        done: Any = torch.futures.Future(devices=devices)
        # Only what a callback raises is an error to torch's C++, such as DDP's reducer: to that an
        # exception of set_exception() is a value, and no list of tensors.
        future = done.then(lambda _: self._outcome())
        native = self._native
        if native is None or native.done():
            done.set_result(None)
        else:
            self._completions.hand_on()  # Who asks for it may wait for it.
            self._completions.watch(native, lambda: done.set_result(None))
        return future

    def _outcome(self) -> list[Tensor]:
        self.wait()
        return self._result

    def forget_result(self) -> bool:
        """Lets go of the tensors once someone has waited; result() has none then."""
        done = self._native is None or self._native.done()  # The latter if it failed.
        over = done and self._asked and (self._future is None or self._future.done())
        if over:
            self._result, self._future = [], None
        return over

    def _conclude(self) -> None:
        with self._lock:
            after, self._after = self._after, ()
            try:
                for step in after:
                    step()
            except Exception as error:
                self._error = error
            self._native = None


class _Batch:
    """Operations that the engine may have in flight together, and the copies around them."""

    def __init__(self) -> None:
        self.ops: list[_native.Op] = []
        self.before: list[Callable[[], object]] = []
        self.after: list[Callable[[], None]] = []
        self.buffers: list[Tensor] = []

    def copy_in(self) -> None:
        for step in self.before:
            step()

    def run(self, group: Group) -> None:
        """Carries everything out on this thread."""
        self.copy_in()
        group.native.run(self.ops, self.buffers)
        for step in self.after:
            step()


class _Plan:
    """The engine's operations for one collective, or for those that torch coalesces.

    The engine starts operations in order, but has many in flight. One that touches memory which an
    earlier one writes, or writes what an earlier one touches, begins a new batch: a batch begins
    once the one before is over. So a tensor that is given twice is reduced twice.
    """

    def __init__(self, group: Group, timeout: float | None) -> None:
        self.batches = [_Batch()]
        self.unit: CorroWork | None = None  # Of several collectives that torch coalesces.
        self.is_transfer = False  # It sends or receives: a barrier must not wait for that.
        self._group = group
        self._size = group.size()
        self._timeout = timeout
        self._touched = extents.Touched()  # By the last batch.
        self._next = _Batch()  # What the next operation copies, and
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
        op: Any = None,
        **more: Any,
    ) -> None:
        """Adds an operation on host tensors; counts are elements, op is torch's reduction."""
        if source is not target:
            even = [count] * self._size
            extents.check(
                kind,
                source,
                target,
                rank=self._group.rank(),
                counts=even if counts is None else counts,
                send_counts=even if send_counts is None else send_counts,
                count=count,
            )
        like = source if source is not None else target
        dtype, width = _unit(like) if like is not None else (_native.U8, 1)
        if op is not None and like is not None:
            more |= _reduction(op)
            dtype, width = _arithmetic(like, more["reduce_op"])
        batch = self._batch(kind)
        batch.buffers += [tensor for tensor in (source, target) if tensor is not None]
        batch.ops.append(
            _native.Op(
                kind=kind,
                dims=tuple(like.shape) if like is not None and kind in _WHOLE else None,
                dtype=dtype,
                input=source.data_ptr() if source is not None else 0,
                output=target.data_ptr() if target is not None else 0,
                count=count * width,
                counts=None if counts is None else [n * width for n in counts],
                send_counts=None if send_counts is None else [n * width for n in send_counts],
                timeout=self._timeout,
                **more,
            )
        )

    def _batch(self, kind: int) -> _Batch:
        """Returns the batch for an operation on what was named since the last one."""
        if kind in (_native.SEND, _native.RECV):  # These keep no order.
            self.is_transfer = True
        elif not self._touched.add(self._reads, self._writes):
            self.batches.append(_Batch())
            self._touched = extents.Touched()
            self._touched.add(self._reads, self._writes)
        batch, following = self.batches[-1], self._next
        if following.before or following.after:
            batch.before += following.before
            batch.after += following.after
            self._next = _Batch()
        self._reads, self._writes = [], []
        return batch

    def source(self, tensor: Tensor) -> Tensor:
        """Returns host memory that has the tensor's content once the operation starts."""
        self._reads.append(tensor)
        if is_host(tensor):
            return tensor
        host = host_like(tensor, tensor.shape)
        self._next.before.append(lambda: host.copy_(tensor.detach()))
        return host

    def target(self, tensor: Tensor) -> Tensor:
        """Returns host memory that the tensor gets after the operation: its own if possible."""
        self._writes.append(tensor)
        if is_host(tensor):
            return tensor
        host = host_like(tensor, tensor.shape)
        self._next.after.append(lambda: _copy(tensor, host))
        return host

    def updated(self, tensor: Tensor) -> Tensor:
        """As target, but with the tensor's content in it."""
        host = self.target(tensor)
        if host is not tensor:
            self._next.before.append(lambda: host.copy_(tensor.detach()))
        return host

    def folded(self, tensor: Tensor, fold: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Returns host memory for every rank's tensor, which are folded into the tensor."""
        self._writes.append(tensor)
        parts = host_like(tensor, (self._size, *tensor.shape))
        self._next.after.append(lambda: _copy(tensor, functools.reduce(fold, parts)))
        return parts

    def joined(self, kind: int, tensors: Sequence[Tensor], count: int | None = None) -> Tensor:
        """Returns flat host memory for every rank's tensor, of count elements if given."""
        extents.check_parts(kind, tensors, self._size, count)
        self._reads += tensors
        flat = host_like(tensors[0], (sum(tensor.numel() for tensor in tensors),))

        def copy() -> None:
            with torch.no_grad():
                torch.cat([to_host(tensor).reshape(-1) for tensor in tensors], out=flat)

        self._next.before.append(copy)
        return flat

    def scattered(self, kind: int, tensors: Sequence[Tensor], count: int | None = None) -> Tensor:
        """As joined, but its parts are what the tensors get after the operation."""
        extents.check_parts(kind, tensors, self._size, count)
        self._writes += tensors
        sizes = [tensor.numel() for tensor in tensors]
        flat = host_like(tensors[0], (sum(sizes),))
        parts = torch.split(flat, sizes)

        def copy() -> None:
            for tensor, part in zip(tensors, parts, strict=True):
                _copy(tensor, part.view(tensor.shape))

        self._next.after.append(copy)
        return flat


def _copy(tensor: Tensor, host: Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(host)


def _unit(tensor: Tensor) -> tuple[int, int]:
    """Returns a dtype to move the tensor with, and how many of it make an element."""
    dtype = DTYPES.get(tensor.dtype)
    return (_native.U8, tensor.element_size()) if dtype is None else (dtype, 1)


def _arithmetic(tensor: Tensor, reduce_op: int) -> tuple[int, int]:
    """Returns a dtype to reduce the tensor with, and how many of it make an element."""
    if tensor.dtype in _PARTS and reduce_op in (_native.SUM, _native.AVERAGE):
        return _PARTS[tensor.dtype], 2
    if tensor.dtype not in DTYPES:
        raise InvalidArgumentError(f"corro: no such arithmetic for dtype {tensor.dtype}")
    return DTYPES[tensor.dtype], 1


def _reduction(op: Any) -> dict[str, Any]:
    ours = _REDUCE_OPS.get(op.op)
    if ours is not None:
        return {"reduce_op": ours}
    if op == c10d.ReduceOp.PREMUL_SUM:
        if not hasattr(op, "factor"):
            raise _needs_newer("ReduceOp.PREMUL_SUM")
        return {"reduce_op": _native.SUM, "prescale": float(op.factor)}
    raise UnimplementedError(f"corro: reduce op {op} is not supported here")


def _needs_newer(what: str) -> UnimplementedError:
    return UnimplementedError(
        f"corro: {what} needs torch 2.15 or later; this is {torch.__version__}"
    )


class Collectives:
    """torch's operations, on one group; every rank starts them in the same order."""

    def __init__(self, context: Context, group: Group, timeout: timedelta, owner: bool) -> None:
        self._context = context
        self._group = group
        self._timeout = timeout
        self._owner = owner
        self._unit: _Plan | None = None  # While coalescing.
        self._unfinished: dict[CorroWork, None] = {}  # Collectives; a barrier waits for them.
        self._sequence = 0

    def broadcast(self, tensors: list[Tensor], opts: Any) -> c10d.Work:
        """Fills the tensors with the root's."""
        plan = self._plan(opts)
        for tensor in tensors:
            host = plan.updated(tensor)
            plan.add(_native.BROADCAST, host, host, count=host.numel(), root=opts.rootRank)
        return self._go(plan, opts, tensors)

    def allreduce(self, tensors: list[Tensor], opts: Any) -> c10d.Work:
        """Reduces the tensors, in place."""
        op = opts.reduceOp
        if len(tensors) == 1 and self._unit is None and not getattr(opts, "asyncOp", True):
            tensor, reduce_op = tensors[0], _REDUCE_OPS.get(op.op)
            dtype = DTYPES.get(tensor.dtype)
            if dtype is not None and reduce_op is not None and is_host(tensor):
                return self._allreduce_now(tensor, dtype, reduce_op, opts)
        plan = self._plan(opts)
        bitwise = _BITWISE.get(op.op)
        for tensor in tensors:
            if bitwise is not None:
                source, parts = plan.source(tensor), plan.folded(tensor, bitwise)
                plan.add(_native.ALLGATHER, source, parts, count=source.numel())
                continue
            host = plan.updated(tensor)
            plan.add(_native.ALLREDUCE, host, host, count=host.numel(), op=op)
        return self._go(plan, opts, tensors)

    def _allreduce_now(self, tensor: Tensor, dtype: int, reduce_op: int, opts: Any) -> c10d.Work:
        """As a plan of this one operation; measured, that costs as much as all of torch's call."""
        self._sequence += 1
        address = tensor.data_ptr()
        op = _native.Op(
            kind=_native.ALLREDUCE,
            dims=tuple(tensor.shape),
            dtype=dtype,
            reduce_op=reduce_op,
            input=address,
            output=address,
            count=tensor.numel(),
            timeout=self._seconds(opts),
        )
        self._group.native.run([op], tensor)
        return self._keep(CorroWork(self._context.completions, [tensor]))

    def reduce(self, tensors: list[Tensor], opts: Any) -> c10d.Work:
        """Reduces the tensors into the root's."""
        plan = self._plan(opts)
        is_root = self._group.rank() == opts.rootRank
        for tensor in tensors:
            source = plan.updated(tensor) if is_root else plan.source(tensor)
            target = source if is_root else None
            plan.add(
                _native.REDUCE,
                source,
                target,
                count=source.numel(),
                root=opts.rootRank,
                op=opts.reduceOp,
            )
        return self._go(plan, opts, tensors)

    def allgather(
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None
    ) -> c10d.Work:
        """Fills each list of outputs with every rank's input."""
        plan = self._plan(opts)
        for outs, source in zip(outputs, inputs, strict=True):
            flat = plan.scattered(_native.ALLGATHER, outs)
            plan.add(
                _native.ALLGATHER,
                plan.source(source),
                flat,
                count=source.numel(),
                counts=[out.numel() for out in outs],
            )
        return self._go(plan, opts, [out for outs in outputs for out in outs])

    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> c10d.Work:
        """Fills output with every rank's input."""
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> c10d.Work:
        """Fills each output with every rank's input."""
        plan = self._plan(opts)
        for output, source in zip(outputs, inputs, strict=True):
            plan.add(
                _native.ALLGATHER, plan.source(source), plan.target(output), count=source.numel()
            )
        return self._go(plan, opts, outputs)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> c10d.Work:
        """Fills the root's list of outputs with every rank's input."""
        plan = self._plan(opts)
        for index, source in enumerate(inputs):
            is_root = self._group.rank() == opts.rootRank
            count = source.numel()
            target = plan.scattered(_native.GATHER, outputs[index], count) if is_root else None
            plan.add(_native.GATHER, plan.source(source), target, count=count, root=opts.rootRank)
        return self._go(plan, opts, [out for outs in outputs for out in outs])

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> c10d.Work:
        """Fills every rank's output from the root's list of inputs."""
        plan = self._plan(opts)
        for index, output in enumerate(outputs):
            is_root = self._group.rank() == opts.rootRank
            count = output.numel()
            source = plan.joined(_native.SCATTER, inputs[index], count) if is_root else None
            target = plan.target(output)
            plan.add(_native.SCATTER, source, target, count=count, root=opts.rootRank)
        return self._go(plan, opts, outputs)

    def reduce_scatter(
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any
    ) -> c10d.Work:
        """Reduces each list of inputs; every rank's output gets the part of its rank."""
        plan = self._plan(opts)
        for output, parts in zip(outputs, inputs, strict=True):
            plan.add(
                _native.REDUCESCATTER,
                plan.joined(_native.REDUCESCATTER, parts),
                plan.target(output),
                count=output.numel(),
                counts=[part.numel() for part in parts],
                op=opts.reduceOp,
            )
        return self._go(plan, opts, outputs)

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any) -> c10d.Work:
        """Reduces input; every rank's output gets the part of its rank."""
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any
    ) -> c10d.Work:
        """Reduces each input; every rank's output gets the part of its rank."""
        plan = self._plan(opts)
        for output, source in zip(outputs, inputs, strict=True):
            plan.add(
                _native.REDUCESCATTER,
                plan.source(source),
                plan.target(output),
                count=output.numel(),
                op=opts.reduceOp,
            )
        return self._go(plan, opts, outputs)

    def all_to_all_single(
        self,
        output: Tensor,
        source: Tensor,
        output_splits: list[int],
        input_splits: list[int],
        opts: Any = None,
    ) -> c10d.Work:
        """Sends input_splits[r] rows to rank r, receives output_splits[r]; none: equal parts."""
        plan = self._plan(opts)
        plan.add(
            _native.ALLTOALL,
            plan.source(source),
            plan.target(output),
            counts=self._split(output, output_splits),
            send_counts=self._split(source, input_splits),
        )
        return self._go(plan, opts, [output])

    def _split(self, tensor: Tensor, splits: Sequence[int]) -> list[int]:
        size = self._group.size()
        if not splits:
            if tensor.numel() % size != 0:
                raise InvalidArgumentError(
                    f"all_to_all_single: {tensor.numel()} elements do not divide by {size} ranks"
                )
            return [tensor.numel() // size] * size
        rows = tensor.size(0)
        if len(splits) != size or min(splits) < 0 or sum(splits) != rows:
            raise InvalidArgumentError(
                f"all_to_all_single: {list(splits)} are not {size} splits with the sum {rows}"
            )
        return [n * (tensor.numel() // max(1, rows)) for n in splits]

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> c10d.Work:
        """Sends inputs[r] to each rank r and receives outputs[r] from it."""
        plan = self._plan(opts)
        plan.add(
            _native.ALLTOALL,
            plan.joined(_native.ALLTOALL, inputs),
            plan.scattered(_native.ALLTOALL, outputs),
            counts=[out.numel() for out in outputs],
            send_counts=[part.numel() for part in inputs],
        )
        return self._go(plan, opts, outputs)

    def send(self, tensors: list[Tensor], peer: int, tag: int = 0) -> c10d.Work:
        """Sends a tensor to a rank of the group."""
        plan = self._plan(None)
        for tensor in tensors:
            source = plan.source(tensor)
            plan.add(_native.SEND, source, None, count=source.numel(), root=peer, tag=tag)
        return self._go(plan, None, tensors)

    def recv(self, tensors: list[Tensor], peer: int, tag: int = 0) -> c10d.Work:
        """Fills a tensor with what a rank of the group sends."""
        plan = self._plan(None)
        for tensor in tensors:
            target = plan.target(tensor)
            plan.add(_native.RECV, None, target, count=target.numel(), root=peer, tag=tag)
        return self._go(plan, None, tensors)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> c10d.Work:  # noqa: ARG002
        """Not supported: a message is received from a named rank."""
        self._unit = None
        raise UnimplementedError("corro: recv without a source rank is not supported; give src")

    def barrier(self, opts: Any = None) -> c10d.Work:
        """Done once every rank has come, and all earlier collectives are done on this rank.

        The engine starts a group's operations in the order of the calls, but has many of them in
        flight at a time: a barrier, which moves no data, would overtake them.
        """
        earlier, background = list(self._unfinished), getattr(opts, "asyncOp", True)
        if not background:
            for work in earlier:
                work.finish()
        plan = self._plan(opts)
        plan.add(_native.BARRIER, None, None)
        work = self._go(plan, opts, [])
        if background:
            work.wait_for(earlier)
        return work

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:  # noqa: ARG002
        """A barrier; corro's errors name the rank that is missing anyway."""
        self.barrier(opts).wait()

    @property
    def supports_coalescing(self) -> bool:
        """Whether start_coalescing() works: yes."""
        return True

    def start_coalescing(self, _device: Any = None) -> None:
        """Collects the operations that follow."""
        self._unit = _Plan(self._group, self._timeout.total_seconds())
        self._unit.unit = CorroWork(self._context.completions, [])

    def end_coalescing(self, _device: Any = None) -> c10d.Work:
        """Starts what was collected as one unit."""
        plan, self._unit = self._unit, None
        if plan is None or plan.unit is None:
            raise FailedPreconditionError(
                "corro: an operation that was collected with others has failed; none was started"
            )
        if plan.batches[0].ops:
            self._submit(plan, plan.unit)
        return self._keep(plan.unit)

    # Names that torch has, or had, besides.
    allreduce_coalesced = allreduce
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
    _start_coalescing = start_coalescing
    _end_coalescing = end_coalescing

    def getBackendName(self) -> str:  # noqa: N802
        """Returns the name in torch.distributed."""
        return "corro"

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the deadline of operations that have none."""
        self._timeout = timeout

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def shutdown(self) -> None:
        """Leaves the group; the world's leaves the job, if init_process_group has joined it."""
        if self._owner:
            self._owner = False
            leave(self._context)

    def abort(self) -> None:
        """As shutdown(): operations in flight fail."""
        self.shutdown()

    def _plan(self, opts: Any) -> _Plan:
        # _go() puts a unit back. An error before that ends it: torch does not end it then.
        plan, self._unit = self._unit, None
        return plan if plan is not None else _Plan(self._group, self._seconds(opts))

    def _seconds(self, opts: Any) -> float:
        """Returns the deadline that the caller gave, else the group's."""
        timeout: timedelta | None = getattr(opts, "timeout", None)
        if timeout is None or timeout <= _NO_TIME:
            timeout = self._timeout
        return timeout.total_seconds()

    def _go(self, plan: _Plan, opts: Any, result: list[Tensor]) -> CorroWork:
        self._sequence += 1
        if plan.unit is not None:
            self._unit = plan
            return plan.unit
        work = CorroWork(self._context.completions, result)
        if getattr(opts, "asyncOp", True):
            self._submit(plan, work)
        else:  # The caller waits: this thread moves the operation itself.
            for batch in plan.batches:
                batch.run(self._group)
        return self._keep(work)

    def _keep(self, work: CorroWork) -> CorroWork:
        """Returns the work, which torch holds; where it does not, someone else has to."""
        return work

    def _submit(self, plan: _Plan, work: CorroWork) -> None:
        *first, last = plan.batches
        for batch in first:
            batch.run(self._group)
        last.copy_in()
        native = self._group.native.submit(last.ops, (last.buffers, work))
        work.begin(native, last.after, None if plan.is_transfer else self._unfinished)


class CorroBackend(Collectives, c10d.Backend):
    """torch 2.15 and later call the operations through Backend."""

    def __init__(self, context: Context, group: Group, timeout: timedelta, owner: bool) -> None:
        c10d.Backend.__init__(self, group.rank(), group.size())
        Collectives.__init__(self, context, group, timeout, owner)
        self._options = c10d.Backend.Options("corro", timeout)

    @property
    def options(self) -> c10d.Backend.Options:
        """torch's options of this group."""
        return self._options


class CorroProcessGroup(Collectives, c10d.ProcessGroup):  # type: ignore[misc]
    """Older torch calls the operations through ProcessGroup, under older names."""

    def __init__(self, context: Context, group: Group, timeout: timedelta, owner: bool) -> None:
        c10d.ProcessGroup.__init__(self, group.rank(), group.size())
        Collectives.__init__(self, context, group, timeout, owner)
        # This torch keeps only the C++ half of a Work, and calls it a little later.
        self._works: deque[CorroWork] = deque(maxlen=4096)
        self._with_results: deque[CorroWork] = deque(maxlen=4096)

    def _keep(self, work: CorroWork) -> CorroWork:
        self._works.append(work)
        kept = self._with_results
        kept.append(work)
        for _ in range(2):  # More than one, so that what was not over at first leaves as well.
            if len(kept) > _RESULTS_KEPT and not (oldest := kept.popleft()).forget_result():
                kept.append(oldest)
        return work

    @property
    def group_name(self) -> str:  # type: ignore[override]
        """What functional collectives ask for first."""
        raise _needs_newer("functional collectives (DTensor, FSDP2)")


def create(options: Any, backend_options: Any) -> Collectives:  # noqa: ARG001
    """Makes a process group's object: what init_process_group and new_group call."""
    rank, size, timeout = options.group_rank, options.group_size, _timeout(options)
    # Keys are written once, and torch gives a group that is made again the same store and name.
    times = options.store.add(f"corro/{rank}", 1)
    store = c10d.PrefixStore(f"corro/{times}", options.store)
    ranks = list(options.global_ranks_in_group) or list(range(size))
    is_world = not options.global_ranks_in_group
    owner = False
    if is_world and not _context.is_initialized():
        _join(store, rank, size, timeout)
        owner = True
    context = _shared_context(ranks, rank)
    if context is None:  # The world belongs to another back end: an engine for this group alone.
        context = _private_context(options, store)
        ranks, owner = list(range(size)), True
    made = _agreed_number(TorchStore(store), ranks, rank, context.groups_made, timeout)
    context.skip_groups(made)
    group = context.new_group(ranks)
    cls = CorroBackend if _backend_can_be_subclassed() else CorroProcessGroup
    return cls(context, group, timeout, owner)


def _private_context(options: Any, torch_store: Any) -> Context:
    store = TorchStore(torch_store)
    engine = _native.Engine(
        rank=options.group_rank,
        size=options.group_size,
        job=f"torch/{options.group_id}",
        store=store,
        timeout=_timeout(options).total_seconds(),
    )
    return Context(engine, store)


def _timeout(options: Any) -> timedelta:
    """Returns the group's deadline: CORRO_TIMEOUT where torch was given none."""
    given: timedelta = options.timeout
    seconds = timeout_of_environment() if given == default_pg_timeout else None
    return given if seconds is None else timedelta(seconds=seconds)


def leave(context: Context) -> None:
    """Closes an engine that a process group has made."""
    if _context.is_initialized() and context is _context.current():
        _context.shutdown()
    else:
        context.close()


def _join(store: Any, rank: int, size: int, timeout: timedelta) -> None:
    """Makes this process's engine, through `corro run`'s agent or else through torch's store."""
    if os.environ.get("CORRO_RANK") == str(rank) and os.environ.get("CORRO_SIZE") == str(size):
        _context.init(timeout=timeout.total_seconds())
    else:
        _context.start(
            rank=rank, size=size, store=TorchStore(store), timeout=timeout.total_seconds()
        )


def _shared_context(ranks: Sequence[int], rank: int) -> Context | None:
    """Returns the process's engine if its ranks are torch's."""
    if not _context.is_initialized():
        return None
    context = _context.current()
    mine = context.engine.rank
    return context if max(ranks) < context.engine.size and ranks[rank] == mine else None


def _agreed_number(
    store: TorchStore, ranks: Sequence[int], rank: int, made: int, timeout: timedelta
) -> int:
    """Returns the most groups made on any rank: only members of torch's groups make them."""
    seconds = timeout.total_seconds()
    end = time.monotonic() + seconds

    def number_at(key: str, missing: str, world_rank: int) -> int:
        try:
            return int(store.get(key, max(end - time.monotonic(), 0)))
        except NotFoundError:
            text = f"new_group: waited for {missing} for {seconds:g} s: has it been called there?"
            raise TimeoutError(text, rank=world_rank, op="new_group") from None

    if rank != 0:
        store.put(f"groups/{rank}", str(made).encode())
        return number_at("groups", f"rank {ranks[0]}, or one that it waits for,", -1)
    agreed = made
    for other, world_rank in enumerate(ranks[1:], start=1):
        there = number_at(f"groups/{other}", f"rank {world_rank}", world_rank)
        agreed = max(agreed, there)
    store.put("groups", str(agreed).encode())
    return agreed


def _backend_can_be_subclassed() -> bool:
    """Returns whether this torch lets Python override Backend's operations."""

    class Probe(c10d.Backend):
        pass

    try:
        Probe(0, 1)
    except TypeError:
        return False
    return True
