"""torch.distributed's operations on one group, for DDP, FSDP2, DeviceMesh and checkpoints.

They are written once, in Collectives; backend.py has the classes that torch knows them by.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch._C import _distributed_c10d as c10d
from torch.distributed import Backend as BackendNames  # noqa: F401  # Loads torch.distributed.

from corro import _context, _native, _rules
from corro._arguments import MOST_U32, whole
from corro._context import Context, Group
from corro._native import Work as NativeWork
from corro.errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError
from corro.torch import profiled
from corro.torch.any_source import AnySourceWork, Posted
from corro.torch.arithmetic import plain_reduction
from corro.torch.monitored_barrier import MonitoredBarrier
from corro.torch.store import TorchStore
from corro.torch.units import Unit
from corro.torch.verbs import ARRAYS
from corro.torch.works import CorroWork, FinishedWork

if TYPE_CHECKING:
    from torch import Tensor

_NO_TIME = timedelta(0)
_ALLREDUCE, _BROADCAST, _SUM = _native.ALLREDUCE, _native.BROADCAST, _native.SUM


class Collectives:
    """torch's operations, on one group; every rank starts them in the same order."""

    def __init__(
        self, context: Context, group: Group, store: TorchStore, timeout: timedelta, owner: bool
    ) -> None:
        self._monitored = MonitoredBarrier(store, group.ranks, group.rank())
        self._posted = Posted(group, context.completions)
        self._context = context
        self._group = group
        self._native = group.native
        self._seconds_if_none = timeout.total_seconds()
        self._owner = owner
        self._unit: Unit | None = None  # While coalescing.
        self._unfinished: dict[CorroWork, None] = {}  # Collectives; a barrier waits for them.
        self._sequence = 0

    def broadcast(self, tensors: list[Tensor], opts: Any) -> c10d.Work:
        """Fills the tensors with the root's."""
        root = opts.rootRank
        if (work := self._at_once(_BROADCAST, tensors, opts, _SUM, root)) is not None:
            return work
        unit = self._begin(opts)
        for tensor in tensors:
            host = unit.updated(tensor)
            unit.add(_BROADCAST, host, host, count=host.numel(), root=root)
        return self._go(unit, opts, tensors, "broadcast", tensors)

    def allreduce(self, tensors: list[Tensor], opts: Any) -> c10d.Work:
        """Reduces the tensors, in place."""
        op = opts.reduceOp
        if (work := self._at_once(_ALLREDUCE, tensors, opts, plain_reduction(op))) is not None:
            return work
        unit = self._begin(opts)
        for tensor in tensors:
            unit.add_allreduce(tensor, op)
        return self._go(unit, opts, tensors, "all_reduce", tensors)

    def reduce(self, tensors: list[Tensor], opts: Any) -> c10d.Work:
        """Reduces the tensors into the root's."""
        unit = self._begin(opts)
        is_root = self._group.rank() == opts.rootRank
        for tensor in tensors:
            source = unit.updated(tensor) if is_root else unit.source(tensor)
            target = source if is_root else None
            unit.add(
                _native.REDUCE,
                source,
                target,
                count=source.numel(),
                root=opts.rootRank,
                op=opts.reduceOp,
            )
        return self._go(unit, opts, tensors, "reduce", tensors)

    def allgather(
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None
    ) -> c10d.Work:
        """Fills each list of outputs with every rank's input."""
        unit = self._begin(opts)
        for outs, source in zip(outputs, inputs, strict=True):
            flat = unit.scattered(_native.ALLGATHER, outs)
            unit.add(
                _native.ALLGATHER,
                unit.source(source),
                flat,
                count=source.numel(),
                counts=[out.numel() for out in outs],
            )
        return self._go(unit, opts, [out for outs in outputs for out in outs], "all_gather", inputs)

    def allgather_coalesced(
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None
    ) -> c10d.Work:
        """Fills outputs[r] with the inputs of each rank r."""
        for theirs in outputs:
            if len(theirs) != len(inputs):
                raise InvalidArgumentError(
                    f"allgather: {len(theirs)} outputs of a rank for {len(inputs)} inputs"
                )
        return self.allgather([list(outs) for outs in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> c10d.Work:
        """Fills output with every rank's input."""
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> c10d.Work:
        """Fills each output with every rank's input."""
        unit = self._begin(opts)
        for output, source in zip(outputs, inputs, strict=True):
            unit.add(
                _native.ALLGATHER, unit.source(source), unit.target(output), count=source.numel()
            )
        return self._go(unit, opts, outputs, "all_gather_single", inputs)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> c10d.Work:
        """Fills the root's list of outputs with every rank's input."""
        unit = self._begin(opts)
        for index, source in enumerate(inputs):
            is_root = self._group.rank() == opts.rootRank
            count = source.numel()
            target = unit.scattered(_native.GATHER, outputs[index], count) if is_root else None
            unit.add(_native.GATHER, unit.source(source), target, count=count, root=opts.rootRank)
        return self._go(unit, opts, [out for outs in outputs for out in outs], "gather", inputs)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> c10d.Work:
        """Fills every rank's output from the root's list of inputs."""
        unit = self._begin(opts)
        for index, output in enumerate(outputs):
            is_root = self._group.rank() == opts.rootRank
            count = output.numel()
            source = unit.joined(_native.SCATTER, inputs[index], count) if is_root else None
            target = unit.target(output)
            unit.add(_native.SCATTER, source, target, count=count, root=opts.rootRank)
        return self._go(unit, opts, outputs, "scatter", inputs[0] if inputs else [])

    def reduce_scatter(
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any
    ) -> c10d.Work:
        """Reduces each list of inputs; every rank's output gets the part of its rank."""
        unit = self._begin(opts)
        for output, parts in zip(outputs, inputs, strict=True):
            unit.add(
                _native.REDUCESCATTER,
                unit.joined(_native.REDUCESCATTER, parts),
                unit.target(output),
                count=output.numel(),
                counts=[part.numel() for part in parts],
                op=opts.reduceOp,
            )
        return self._go(unit, opts, outputs, "reduce_scatter", inputs[0] if inputs else [])

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any) -> c10d.Work:
        """Reduces input; every rank's output gets the part of its rank."""
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any
    ) -> c10d.Work:
        """Reduces each input; every rank's output gets the part of its rank."""
        unit = self._begin(opts)
        for output, source in zip(outputs, inputs, strict=True):
            unit.add(
                _native.REDUCESCATTER,
                unit.source(source),
                unit.target(output),
                count=output.numel(),
                op=opts.reduceOp,
            )
        return self._go(unit, opts, outputs, "reduce_scatter_single", inputs)

    def all_to_all_single(
        self,
        output: Tensor,
        source: Tensor,
        output_splits: list[int],
        input_splits: list[int],
        opts: Any = None,
    ) -> c10d.Work:
        """Sends input_splits[r] rows to rank r, receives output_splits[r]; none: equal parts."""
        unit = self._begin(opts)
        unit.add(
            _native.ALLTOALL,
            unit.source(source),
            unit.target(output),
            counts=self._split(output, output_splits),
            send_counts=self._split(source, input_splits),
        )
        return self._go(unit, opts, [output], "all_to_all", [source])

    def _split(self, tensor: Tensor, given: list[int]) -> list[int]:
        """Returns the elements for each rank."""
        verb, size = "all_to_all_single", self._group.size()
        if not given:
            return _rules.splits(verb, None, size, tensor.numel(), "elements")
        rows = tensor.size(0)
        row = tensor.numel() // max(1, rows)
        return [n * row for n in _rules.splits(verb, given, size, rows)]

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> c10d.Work:
        """Sends inputs[r] to each rank r and receives outputs[r] from it."""
        unit = self._begin(opts)
        unit.add(
            _native.ALLTOALL,
            unit.joined(_native.ALLTOALL, inputs),
            unit.scattered(_native.ALLTOALL, outputs),
            counts=[out.numel() for out in outputs],
            send_counts=[part.numel() for part in inputs],
        )
        return self._go(unit, opts, outputs, "all_to_all", inputs)

    def send(self, tensors: list[Tensor], peer: int, tag: int = 0) -> c10d.Work:
        """Sends a tensor to a rank of the group."""
        tag = whole("tag", tag, 0, MOST_U32)
        unit = self._begin(None)
        for tensor in tensors:
            source = unit.source(tensor)
            unit.add(_native.SEND, source, None, count=source.numel(), root=peer, tag=tag)
        return self._go(unit, None, tensors, "send", tensors)

    def recv(self, tensors: list[Tensor], peer: int, tag: int = 0) -> c10d.Work:
        """Fills a tensor with what a rank of the group sends."""
        tag = whole("tag", tag, 0, MOST_U32)
        if self._posted.has(tag, peer):
            return self._receive_posted(tensors, [peer], tag, "recv")
        unit = self._begin(None)
        for tensor in tensors:
            target = unit.target(tensor)
            unit.add(_native.RECV, None, target, count=target.numel(), root=peer, tag=tag)
        return self._go(unit, None, tensors, "recv", tensors)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> c10d.Work:
        """Fills a tensor with what any rank of the group sends; the work knows who it was."""
        tag = whole("tag", tag, 0, MOST_U32)
        others = [r for r in range(self._group.size()) if r != self._group.rank()]
        for tensor in tensors:
            self._posted.post(tag, tensor)
        return self._receive_posted(tensors, others, tag, "recvAnySource")

    def _receive_posted(
        self, tensors: list[Tensor], sources: list[int], tag: int, verb: str
    ) -> c10d.Work:
        if self._unit is not None:
            self._unit = None
            raise UnimplementedError(
                f"corro: a message with tag {tag}, which is received without a source, cannot be "
                "received together with other operations (batch_isend_irecv, a coalescing manager)"
            )
        self._sequence += 1
        (tensor,) = tensors
        posted, seconds = self._posted, self._seconds(None)
        work = AnySourceWork(self._context, tensor, posted, tag, sources, seconds)
        if profiled.is_on():
            work.note_end_with(profiled.begin(verb, tensors))
        return self._keep(work)

    def barrier(self, opts: Any = None) -> c10d.Work:
        """Done once every rank has come, and all earlier collectives are done on this rank.

        The engine starts a group's operations in the order of the calls, but has many of them in
        flight at a time: a barrier, which moves no data, would overtake them.
        """
        earlier, background = list(self._unfinished), getattr(opts, "asyncOp", True)
        if not background:
            for work in earlier:
                work.finish()
        unit = self._begin(opts)
        unit.add(_native.BARRIER, None, None)
        work = self._go(unit, opts, [], "barrier", [])
        if background:
            work.wait_for(earlier)
        return work

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """A barrier that says on rank 0 who has not come: the first, or all."""
        seconds = opts.timeout.total_seconds()  # Negative: none was given. 0 is a deadline.
        self._sequence += 1
        self._monitored.wait(seconds if seconds >= 0 else self._seconds(None), wait_all_ranks)

    @property
    def supports_coalescing(self) -> bool:
        """Whether start_coalescing() works: yes."""
        return True

    def start_coalescing(self, _device: Any = None) -> None:
        """Collects the operations that follow."""
        self._unit = Unit(self._group, self._seconds_if_none)
        self._unit.work = CorroWork(self._context, [])

    def end_coalescing(self, _device: Any = None) -> c10d.Work:
        """Starts what was collected as one unit."""
        unit, self._unit = self._unit, None
        if unit is None or unit.work is None:
            raise FailedPreconditionError(
                "corro: an operation that was collected with others has failed; none was started"
            )
        if unit.batches[0].ops:
            self._submit(unit, unit.work)
        return self._keep(unit.work)

    # Names that torch has, or had, besides.
    allreduce_coalesced = allreduce
    allreduce_sparse = allreduce
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
        self._seconds_if_none = timeout.total_seconds()

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def shutdown(self) -> None:
        """Leaves the group; the world's leaves the job, if init_process_group has joined it."""
        if self._owner:
            self._owner = False
            if _context.is_initialized() and self._context is _context.current():
                _context.shutdown()
            else:
                self._context.close()

    def abort(self) -> None:
        """As shutdown(): operations in flight fail."""
        self.shutdown()

    def _at_once(
        self, kind: int, tensors: list[Tensor], opts: Any, reduce_op: int | None, root: int = 0
    ) -> CorroWork | None:
        """Starts an operation in place on one tensor, by one call of the engine; carries it out if
        the caller waits. None, and nothing done, if it needs a unit.
        """
        if reduce_op is None or self._unit is not None or len(tensors) != 1 or profiled.is_on():
            return None
        tensor, seconds = tensors[0], self._seconds(opts)
        self._sequence += 1
        if not getattr(opts, "asyncOp", True):  # This thread moves the operation itself.
            made = self._native.run_array(
                ARRAYS, kind, tensor, tensor, reduce_op, root, 1.0, 1.0, seconds
            )
            if made is not None:
                done = FinishedWork()
                done._result = tensors
                return self._keep(done)
        else:
            started = self._native.submit_array(
                ARRAYS, kind, tensor, tensor, reduce_op, root, 1.0, 1.0, seconds
            )
            if started is not None:
                work = CorroWork(self._context, tensors)
                work.begin(started[0], (), self._unfinished)
                return self._keep(work)
        self._sequence -= 1
        return None

    def _begin(self, opts: Any) -> Unit:
        # _go() puts a unit back. An error before that ends it: torch does not end it then.
        unit, self._unit = self._unit, None
        return unit if unit is not None else Unit(self._group, self._seconds(opts))

    def _seconds(self, opts: Any) -> float:
        """Returns the deadline that the caller gave, else the group's."""
        timeout: timedelta | None = getattr(opts, "timeout", None)
        if timeout is None or timeout <= _NO_TIME:
            return self._seconds_if_none
        return timeout.total_seconds()

    def _go(
        self, unit: Unit, opts: Any, result: list[Tensor], verb: str, inputs: Sequence[Tensor]
    ) -> CorroWork:
        """Starts the unit, or leaves it to the coalescing manager; verb and inputs are shown."""
        self._sequence += 1
        if unit.work is not None:
            self._unit = unit
            return unit.work
        work = CorroWork(self._context, result)
        background = getattr(opts, "asyncOp", True)
        if profiled.is_on():
            self._submit_profiled(unit, work, verb, inputs)
            if not background:
                work.wait()
        elif background:
            self._submit(unit, work)
        else:  # The caller waits: this thread moves the operations itself.
            for batch in unit.batches:
                batch.run(self._group)
        return self._keep(work)

    def _submit_profiled(
        self, unit: Unit, work: CorroWork, verb: str, inputs: Sequence[Tensor]
    ) -> None:
        """As _submit, as an event that a thread for callbacks ends; wait() waits for that, too."""
        end = profiled.begin(verb, inputs)
        try:
            native = self._submit(unit, work)
        except BaseException:
            end()
            raise
        work.end_event_with(native, end)

    def _keep(self, work: CorroWork) -> CorroWork:
        """Returns the work, which torch holds; where it does not, someone else has to."""
        return work

    def _submit(self, unit: Unit, work: CorroWork) -> NativeWork:
        *first, last = unit.batches
        for batch in first:
            batch.run(self._group)
        last.copy_in()
        native = self._native.submit(last.ops, (last.buffers, work))
        work.begin(native, last.after, None if unit.is_transfer else self._unfinished)
        return native
