"""Gradient buckets: gradients that are reduced together are views of one flat tensor in the arena.

Autograd adds into the views, the engine reduces the flat tensor in place, the optimizer reads the
views: nothing is copied. Which gradients have come, when a bucket is reduced, casting, scaling and
zeroing are the engine's (corro_bucket_* in corro/corro.h).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from corro import _context
from corro._context import Group
from corro._reduce_op import Average, ReduceOp
from corro.errors import FailedPreconditionError, InvalidArgumentError
from corro.torch.compression import Compression, Compressor, EngineCodec
from corro.torch.memory_order import Order, strides_of
from corro.torch.slot import Slot
from corro.torch.verbs import DTYPES, arena_tensor

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

_ALIGNMENT = 64  # Bytes; of every gradient within its bucket.


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketOptions:
    """How gradients are gathered in buckets, and reduced."""

    first_bytes: int = 1 << 20  # Small, so that communication begins early.
    bytes: int = 25 << 20
    passes: int = 1  # Backward passes between two steps.
    op: ReduceOp = Average
    prescale: float = 1.0
    postscale: float = 1.0
    compression: EngineCodec | Compressor = Compression.none

    def limited(self, most: int) -> BucketOptions:
        """Returns the same with buckets of at most so many bytes."""
        return replace(self, bytes=most, first_bytes=min(self.first_bytes, most))

    def __post_init__(self) -> None:
        if self.bytes < 0:
            raise InvalidArgumentError(f"bucket_bytes has to be at least 0, not {self.bytes}")
        if self.passes < 1:
            raise InvalidArgumentError(
                f"backward_passes_per_step has to be at least 1, not {self.passes}"
            )
        if not isinstance(self.compression, EngineCodec | Compressor):
            raise InvalidArgumentError(
                "compression has to be Compression.none, .fp16, .bf16, or something with compress()"
                f" and decompress(), not {self.compression!r}"
            )
        if not isinstance(self.op, ReduceOp):
            raise InvalidArgumentError(f"op has to be a ReduceOp such as Average, not {self.op!r}")


class _Flat:
    """The memory of one bucket: gradients on their device, and what the engine reduces."""

    def __init__(self, first: Parameter, count: int, small: tuple[torch.dtype, int] | None) -> None:
        """`small`: dtype and count of what a compressor makes of the gradients, if there is one."""
        engine = _context.current().engine
        if small is not None:
            self.here = torch.zeros(count, dtype=first.dtype, device=first.device)
            self.host = arena_tensor(engine, (small[1],), small[0])
        elif first.is_cuda:
            self.here = torch.zeros(count, dtype=first.dtype, device=first.device)
            self.host = torch.zeros(count, dtype=first.dtype, device="cpu", pin_memory=True)
        else:
            self.here = arena_tensor(engine, (count,), first.dtype)
            self.host = self.here


class Buckets:
    """One set of buckets of the engine, with the gradients in it. Externally synchronized."""

    def __init__(
        self,
        group: Group,
        members: Sequence[Sequence[tuple[str, Parameter]]],
        orders: Mapping[int, Order],
        how: BucketOptions,
    ) -> None:
        """Makes a bucket of each of these lists of parameters; each has one dtype and device.

        Args:
            group: the ranks.
            members: the lists.
            orders: the memory order of each gradient in its bucket, by its parameter's id.
            how: how they are reduced.
        """
        self.slots: list[Slot] = []
        self.tasks: set[int] = set()  # Backward passes that have brought a gradient of these.
        self.news = False  # A gradient has come since close().
        self.closed = False  # In this generation.
        self._removed: list[Slot] = []  # They were None, or never came, at the last close().
        self._flats: list[_Flat] = []
        self._parts: list[tuple[str, int, int, int, int]] = []
        engines = isinstance(how.compression, EngineCodec)
        self._compressor = None if engines else how.compression
        for bucket in members:
            self._add_bucket(bucket, orders)
        self._group = group
        self.set_options(how)

    def set_options(self, how: BucketOptions) -> None:
        """Makes the engine's set; between two steps."""
        self._passes = how.passes
        self.native = self._group.native.buckets(
            parts=self._parts,
            reduce_op=how.op,
            passes=how.passes,
            prescale=how.prescale,
            postscale=how.postscale,
            codec=how.compression.address if isinstance(how.compression, EngineCodec) else 0,
            buffers=self._flats,
        )
        for slot in self.slots:
            slot.native = self.native

    def _add_bucket(
        self, members: Sequence[tuple[str, Parameter]], orders: Mapping[int, Order]
    ) -> None:
        first = members[0][1]
        forms = self._forms(members)
        small = None if forms is None else (forms[0].dtype, sum(map(_padded, forms)))
        flat = _Flat(first, sum(_padded(param) for _, param in members), small)
        address, offset, offset_of_form = flat.host.data_ptr(), 0, 0
        for i, (name, param) in enumerate(members):
            host, order = None, orders[id(param)]
            place, travels = address + offset * first.element_size(), _padded(param)
            if forms is not None:
                form, travels = forms[i], _padded(forms[i])
                host = flat.host[offset_of_form : offset_of_form + form.numel()].view(form.shape)
                place = host.data_ptr() if form.numel() > 0 else address
                offset_of_form += travels
            elif flat.host is not flat.here:
                strides = strides_of(param.shape, order)
                host = flat.host.as_strided(param.shape, strides, offset)
            self.slots.append(Slot(param, name, len(self.slots), flat.here, offset, order, host))
            # With what fills it up, so that a bucket has no gaps.
            dtype = DTYPES[flat.host.dtype]
            self._parts.append((name, dtype, place, travels, len(self._flats)))
            offset += _padded(param)
        self._flats.append(flat)

    def _forms(self, members: Sequence[tuple[str, Parameter]]) -> list[Tensor] | None:
        """Returns what gradients of a bucket travel as, if there is a compressor: of zeros."""
        if self._compressor is None:
            return None
        forms = [self._compressor.compress(torch.zeros_like(param))[0] for _, param in members]
        for (name, _), form in zip(members, forms, strict=True):
            if form.dtype not in DTYPES or form.dtype != forms[0].dtype:
                raise InvalidArgumentError(
                    f"compress() of the gradient of {name} returned {form.dtype}, which cannot be"
                    " reduced, or not with others of its dtype"
                )
        return forms

    def close(self, word: int) -> None:
        """Has the engine reduce what was not; ranks agree on the word. After complete()."""
        # No signal comes between the next two.
        self.closed, self.news = True, False
        self.native.close(self.native.generation, word)

    def complete(self, used: bool) -> None:
        """Brings gradients that are elsewhere to their places, and zeros for None, before close().

        First in a generation, these are gradients that did not come in all passes. Later, any may
        have been replaced or removed since it was reduced, and all are reduced once more.
        `used`: this rank's optimizer will use them.
        """
        first = not self.closed
        slots = [self.slots[part] for part in self.native.missing()] if first else self.slots
        removed = [slot for slot in slots if first or slot.grad is None]
        for slot in slots:
            grad = slot.grad
            may_be_set = grad is not None and (first or grad is not slot.view)
            if used and grad is not None and grad is not slot.view and grad.requires_grad:
                raise slot.graph_error()
            slot.copy_gradient()
            slot.publish(self._compressor)
            if may_be_set and self.native.came(slot.part) == 0 and slot.view.any():
                self.ready(slot)
        self._removed = removed

    def ready(self, slot: Slot) -> None:
        """Counts the gradient, which is in its place."""
        slot.publish(self._compressor)
        try:
            self.native.ready(slot.part)
        except FailedPreconditionError as error:
            raise slot.too_often_error(self._passes) from error

    def use_results(self, absent_are_zeros: bool) -> None:
        """Gives parameters what was reduced; None or zeros where no rank brought a gradient."""
        if self._compressor is None:  # What lies alike on both sides is copied as a whole.
            for flat in self._flats:
                if flat.host is not flat.here:
                    flat.here.copy_(flat.host)
        for slot in self.slots:
            if self._compressor is not None or slot.is_apart:
                slot.fetch(self._compressor)
        for slot in self._removed:
            if absent_are_zeros or self.native.came_anywhere(slot.part):
                slot.attach()
            else:
                slot.detach()  # As in one process: the optimizer leaves it alone.

    def next(self) -> list[str]:
        """Begins the next generation; returns the names of gradients that no rank has brought."""
        absent = [s.name for s in self._removed if not self.native.came_anywhere(s.part)]
        self.native.next()
        self.forget()
        return absent

    def forget(self) -> None:
        """A generation has begun."""
        self.closed = self.news = False
        self.tasks.clear()
        self._removed = []

    def zero(self) -> None:
        """Zeroes all gradients; not while a reduction is on its way."""
        for flat in self._flats:
            flat.here.zero_()
        for slot in self.slots:
            if slot.is_apart:
                slot.view.zero_()


def cut(
    members: Sequence[tuple[str, Parameter]], options: BucketOptions, first: bool
) -> list[list[tuple[str, Parameter]]]:
    """Cuts parameters, in order, into buckets of one dtype and device each.

    `first`: no bucket comes before them.
    """
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


def _padded(tensor: Tensor) -> int:
    """Returns the tensor's number of elements, with what brings the next one to its alignment."""
    step = max(1, _ALIGNMENT // tensor.element_size())
    return -(-tensor.numel() // step) * step
