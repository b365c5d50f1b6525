"""Gradient buckets: gradients that are reduced together are views of one flat tensor in the arena.

Autograd adds into the views, the engine reduces the flat tensor in place, the optimizer reads the
views: nothing is copied. A bucket is reduced in the background as soon as its gradients, and those
of all buckets before it, are there; so every rank starts the buckets in the same order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from corro import _context, _native
from corro._context import Group
from corro._reduce_op import Average, ReduceOp
from corro.errors import FailedPreconditionError, InvalidArgumentError
from corro.torch.agreement import ValueCheck, check_same_lines, check_same_tensors
from corro.torch.compression import Compression, Compressor
from corro.torch.verbs import DTYPES, arena_tensor

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter
    from torch.utils.hooks import RemovableHandle

_ALIGNMENT = 64  # Bytes; of every gradient within its bucket.


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketOptions:
    """How gradients are gathered in buckets, and reduced."""

    first_bytes: int = 1 << 20  # Small, so that communication begins early.
    bytes: int = 25 << 20
    passes: int = 1  # Backward passes between two reductions.
    op: ReduceOp = Average
    prescale: float = 1.0
    postscale: float = 1.0
    compression: Compressor = Compression.none

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise InvalidArgumentError(
                f"backward_passes_per_step has to be at least 1, not {self.passes}"
            )
        if not isinstance(self.compression, Compressor):
            raise InvalidArgumentError(
                f"compression has to be Compression.none, .fp16 or .bf16, not {self.compression!r}"
            )
        if not isinstance(self.op, ReduceOp):
            raise InvalidArgumentError(f"op has to be a ReduceOp such as Average, not {self.op!r}")


class _Slot:
    """The place of one parameter's gradient in its bucket."""

    __slots__ = ("address", "bucket", "flat", "name", "offset", "param", "passes_left", "view")

    def __init__(
        self, param: Parameter, name: str, bucket: Bucket, flat: Tensor, offset: int
    ) -> None:
        self.param = param
        self.name = name
        self.bucket = bucket
        self.flat = flat
        self.offset = offset
        self.passes_left = 0
        self.view = self._new_view()

    def _new_view(self) -> Tensor:
        view = _view(self.flat, self.param, self.offset)
        self.address = view.data_ptr()
        return view

    def _stay(self) -> None:
        """Module.to() and its like give a parameter and its gradient, the view, other memory."""
        flat = self.flat
        if not self.param.requires_grad:
            return
        if self.param.dtype != flat.dtype or self.param.device != flat.device:
            raise FailedPreconditionError(
                f"{self.name} became {self.param.dtype} on {self.param.device} after "
                "DistributedOptimizer was made; convert the model before that"
            )
        if self.view.data_ptr() != self.address:
            old = self.view
            self.view = self._new_view()
            self.view.copy_(old.detach())
            if self.param.grad is old:
                self.param.grad = self.view

    def adopt(self) -> None:
        """Makes param.grad a view of the bucket, whoever replaced or removed it."""
        self._stay()
        grad = self.param.grad
        if grad is self.view:
            return
        if grad is None:
            self.view.zero_()
        else:
            self.view.copy_(grad.detach())
        self.attach()

    def attach(self) -> None:
        """A parameter frozen since then has no gradient, so the optimizer leaves it alone."""
        self._stay()
        self.param.grad = self.view if self.param.requires_grad else None

    def keep_gradient(self) -> None:
        """As attach(), but a gradient that the user has replaced or removed stays as it is."""
        self._stay()
        if not self.param.requires_grad:
            self.param.grad = None

    def check_unchanged(self) -> None:
        """Refuses to reduce anything but what backward() has left in the view."""
        grad = self.param.grad
        if grad is self.view or not self.param.requires_grad:
            return
        if grad is not None and grad.requires_grad:
            raise self.graph_error()
        raise FailedPreconditionError(
            f"the gradient of {self.name} was replaced or removed before it was reduced: other"
            " gradients of its bucket did not come on this rank; call the optimizer's"
            " synchronize() before you change gradients"
        )

    def graph_error(self) -> FailedPreconditionError:
        """Returns what to raise for a gradient that may be differentiated and has to be reduced."""
        return FailedPreconditionError(
            f"the gradient of {self.name} carries a graph, which its reduction would cut: leave"
            " create_graph=True out of the last backward() before step(), and differentiate twice"
            " by torch.autograd.grad(..., create_graph=True)"
        )


class Bucket:
    """Gradients of one dtype on one device. Externally synchronized."""

    def __init__(
        self, params: Sequence[Parameter], names: Sequence[str], index: int, options: BucketOptions
    ) -> None:
        first = params[0]
        step = max(1, _ALIGNMENT // first.element_size())
        offsets, total = [], 0
        for param in params:
            offsets.append(total)
            total += -(-param.numel() // step) * step
        engine = _context.current().engine
        wire_dtype = options.compression.wire_dtype(first.dtype)
        if first.is_cuda:
            self._wire = torch.zeros(total, dtype=wire_dtype, pin_memory=True)
        else:
            self._wire = arena_tensor(engine, (total,), wire_dtype)
        if first.device.type == "cpu" and wire_dtype == first.dtype:
            self._flat = self._wire
        else:
            self._flat = torch.zeros(total, dtype=first.dtype, device=first.device)
        self.slots = [
            _Slot(param, name, self, self._flat, offset)
            for param, name, offset in zip(params, names, offsets, strict=True)
        ]
        self._op = _native.Op(
            kind=_native.ALLREDUCE,
            dtype=DTYPES[wire_dtype],
            reduce_op=options.op,
            input=self._wire.data_ptr(),
            output=self._wire.data_ptr(),
            count=total,
            prescale=options.prescale,
            postscale=options.postscale,
            name=f"gradients {index}: {names[0]}...",
        )
        self._work: _native.Work | None = None
        self.missing = 0

    def launch(self, group: Group) -> None:
        """Starts the reduction."""
        if self._wire is not self._flat:
            self._wire.copy_(self._flat)
        self._work = group.native.submit([self._op], self)

    def wait(self) -> None:
        """Blocks until the views hold the result."""
        if self.settle() and self._wire is not self._flat:
            self._flat.copy_(self._wire)

    def settle(self) -> bool:
        """Blocks until no reduction is on its way: after an interrupt the last one may still be.

        Returns whether there was one.
        """
        work = self._work
        if work is None:
            return False
        try:
            work.wait()
        finally:
            if work.done():  # An interrupt ends the wait alone.
                self._work = None
        return True

    def zero(self) -> None:
        """Zeroes all gradients; not while a reduction is on its way."""
        self._flat.zero_()


class Reducer:
    """The buckets of an optimizer, and which of them are in flight.

    Thread-safe between autograd's threads; otherwise externally synchronized.
    """

    def __init__(self, group: Group, options: BucketOptions) -> None:
        self._group = group
        self._options = options
        self._values = ValueCheck(group)
        self._buckets: list[Bucket] = []
        self._slots: dict[Tensor, _Slot] = {}
        self._next = 0  # The first bucket that has not been launched.
        self._started = False  # A gradient has come since the last reset.
        self._called_back = False  # At the end of this backward pass.
        self._removed: list[str] = []  # Whose gradients all ranks have removed.
        self._lock = threading.Lock()
        self._closed = ""  # Why, once it is.
        self._hooks: list[RemovableHandle] = []
        _context.current().dependents.add(self)

    def close(
        self,
        why: str = "corro was shut down after this DistributedOptimizer was made; make a new one",
    ) -> None:
        """Lets go of the parameters and takes its gradients away; finish() raises `why` then."""
        with self._lock:
            self._closed = why
            for hook in self._hooks:
                hook.remove()
            for slot in self._slots.values():
                if slot.param.grad is slot.view:
                    slot.param.grad = None
            self._buckets, self._slots, self._hooks = [], {}, []

    def _take_over(self, params: Iterable[Parameter]) -> None:
        """Ends the reducers that had these parameters: two would reduce one gradient twice."""
        mine = set(params)
        for other in list(_context.current().dependents):
            if isinstance(other, Reducer) and other is not self and mine & other._slots.keys():
                for bucket in other._buckets:
                    bucket.wait()
                other.close("its parameters belong to another DistributedOptimizer now; use that")

    def add(self, sets: Iterable[Sequence[tuple[str, Parameter]]]) -> None:
        """Makes buckets for sets of parameters; a set shares no bucket with another.

        Blocks until every rank of the group has called it; MismatchError if theirs differ.
        """
        sets = [list(members) for members in sets]
        check_same_tensors(self._group, "DistributedOptimizer", sets)
        self._take_over(param for members in sets for _, param in members)
        for members in sets:
            for part in _cut(members, self._options, first=not self._buckets):
                names = [name for name, _ in part]
                params = [param for _, param in part]
                bucket = Bucket(params, names, len(self._buckets), self._options)
                self._buckets.append(bucket)
                self._expect(bucket)
                for slot in bucket.slots:
                    self._slots[slot.param] = slot
                    slot.adopt()
                    register: Any = slot.param.register_post_accumulate_grad_hook
                    self._hooks.append(register(self._hook(slot)))

    def knows(self, param: Tensor) -> bool:
        """Returns whether the parameter has a place in a bucket."""
        return param in self._slots

    def set_passes(self, passes: int) -> None:
        """Sets the number of backward passes between two reductions."""
        if self._started:
            raise FailedPreconditionError("backward_passes_per_step cannot change after backward()")
        self._options = replace(self._options, passes=passes)
        self._reset()

    @property
    def started(self) -> bool:
        """Whether a gradient has come since the last finish()."""
        return self._started

    def finish(self) -> None:
        """Reduces what was not reduced yet and waits for all; missing gradients count as zeros.

        What was put in the place of a reduced gradient, or None, stays for the optimizer.
        """
        self._finish(used=True)

    def discard(self) -> None:
        """As finish(), for gradients that nobody uses on this rank: any change is fine."""
        self._finish(used=False)

    def _finish(self, used: bool) -> None:
        with self._lock:
            if self._closed:
                raise FailedPreconditionError(self._closed)
            if used:
                self._check_unreduced()
            while self._next < len(self._buckets):
                bucket = self._buckets[self._next]
                bucket.settle()
                for slot in bucket.slots:
                    slot.adopt()
                self._launch(bucket)
                self._next += 1
        try:
            for bucket in self._buckets:
                bucket.wait()
        finally:
            self._reset()
        for slot in self._slots.values():
            slot.keep_gradient()
        self._values.finish()

    def _check_unreduced(self) -> None:
        for bucket in self._buckets[self._next :]:
            for slot in bucket.slots:
                if slot.passes_left < self._options.passes:
                    slot.check_unchanged()

    def compare_removed(self) -> None:
        """Raises if gradients are None on some ranks only, whose parameters would then differ.

        A rank where the same ones are None as after the last comparison says nothing: if others
        differ, the next operation of this rank does not match their comparison, and fails.
        """
        removed = [slot.name for slot in self._slots.values() if slot.param.grad is None]
        if removed == self._removed:
            return
        check_same_lines(self._group, "step(): ranks have removed different gradients", removed)
        self._removed = removed

    def zero(self) -> None:
        """Zeroes all gradients; one that was removed or replaced becomes a view again."""
        for bucket in self._buckets:
            bucket.settle()
        for slot in self._slots.values():
            slot.attach()  # It brings back what was moved.
        for bucket in self._buckets:
            bucket.zero()

    def _reset(self) -> None:
        self._next = 0
        self._started = False
        self._called_back = False
        for bucket in self._buckets:
            self._expect(bucket)

    def _expect(self, bucket: Bucket) -> None:
        """All gradients of the bucket are to come."""
        bucket.missing = len(bucket.slots)
        for slot in bucket.slots:
            slot.passes_left = self._options.passes

    def _hook(self, slot: _Slot) -> Callable[[Tensor], None]:
        def ready(_: Tensor) -> None:
            with self._lock:
                self._gradient_came(slot)

        return ready

    def _gradient_came(self, slot: _Slot) -> None:
        if self._closed:
            return
        if slot.passes_left == 0:
            raise FailedPreconditionError(
                f"the gradient of {slot.name} came once more before step() of the optimizer that"
                " DistributedOptimizer returned: call that one's step(); to accumulate gradients"
                " over several backward passes, give DistributedOptimizer a larger"
                f" backward_passes_per_step than {self._options.passes}"
            )
        differentiable = torch.is_grad_enabled()  # As within backward(create_graph=True) alone.
        if differentiable and slot.passes_left == 1:
            raise slot.graph_error()
        slot.bucket.settle()
        if not self._started:
            self._values.look(self._slots)
        self._started = True
        if not self._called_back:
            self._called_back = True
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._backward_ended)
        if not differentiable:  # Else it stays as it is: a later pass differentiates it.
            slot.adopt()
        slot.passes_left -= 1
        if slot.passes_left == 0:
            slot.bucket.missing -= 1
        while self._next < len(self._buckets) and self._buckets[self._next].missing == 0:
            self._launch(self._buckets[self._next])
            self._next += 1

    def _launch(self, bucket: Bucket) -> None:
        self._values.start(self._slots)
        bucket.launch(self._group)

    def _backward_ended(self) -> None:
        """Waits for what is on its way: whoever looks at gradients now finds the result."""
        with self._lock:
            self._called_back = False
            launched = self._buckets[: self._next]
        for bucket in launched:
            bucket.wait()


def _cut(
    members: Sequence[tuple[str, Parameter]], options: BucketOptions, first: bool
) -> list[list[tuple[str, Parameter]]]:
    """Cuts parameters, in order, into buckets of one dtype and device each."""
    parts: list[list[tuple[str, Parameter]]] = []
    open_parts: dict[tuple[torch.dtype, torch.device], tuple[list[tuple[str, Parameter]], int]] = {}
    for name, param in members:
        if param.dtype not in DTYPES:
            raise InvalidArgumentError(
                f"{name}: gradients of dtype {param.dtype} cannot be reduced"
            )
        key = (param.dtype, param.device)
        size = param.numel() * param.element_size()
        part, filled = open_parts.get(key, ([], 0))
        limit = options.first_bytes if first and len(parts) <= 1 else options.bytes
        if not part or filled + size > limit:
            part, filled = [], 0
            parts.append(part)
        part.append((name, param))
        open_parts[key] = (part, filled + size)
    return parts


def _view(flat: Tensor, param: Parameter, offset: int) -> Tensor:
    """Returns the gradient's place, laid out as the parameter where that is dense."""
    dense = param.is_contiguous() or (
        param.dim() == 4 and param.is_contiguous(memory_format=torch.channels_last)
    )
    if dense:
        return flat.as_strided(param.size(), param.stride(), offset)
    return flat[offset : offset + param.numel()].view(param.shape)
