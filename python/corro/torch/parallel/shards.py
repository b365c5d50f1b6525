"""A shard: parameters that are used together, of which each data-parallel rank keeps a part.

    rank 0   part of weight, part of bias
    rank 1   part of weight, part of bias

A part is a run of the parameter's elements, in the order of memory; the last ones may be shorter.
So what an optimizer does to a part is what it does to the parameter, if it goes by elements. From
Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC'20,
section 5, where it is the state that is cut (ZeRO 1), gradients, too (2), and parameters, too (3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from corro._calls import Call, Handle
from corro._context import Group
from corro._reduce_op import Sum
from corro.torch.memory_order import dense_strides
from corro.torch.parallel.main_weights import DTYPE, add_up, take_changes
from corro.torch.parallel.offload import GRADIENTS, PARAMETERS, Offloaded
from corro.torch.parallel.stand_ins import stand_in
from corro.torch.verbs import calls


class Shard:
    """Parameters of one dtype. Its collectives have to be called by all ranks of the group.

    The parts are tensors that an optimizer may step. While the parameters are whole, the parts are
    views of them; a shard that drops its parameters, or has main weights, has parts in memory of
    their own.

    A collective begins and ends, so that something else may be done in between; all ranks begin
    them in one order. It reads and writes tensors where they lie, by an operation for each
    parameter. A *room* is a parameter's memory for this: as many elements from each rank, the last
    of which need not be the parameter's.
    """

    def __init__(
        self,
        names: Sequence[str],
        parameters: Sequence[nn.Parameter],
        group: Group,
        drops: bool,
        has_main: bool = False,
        offloaded: Offloaded | None = None,
    ) -> None:
        """
        Args:
            parameters: dense, on one device.
            drops: it may drop() them.
            has_main: the parts are those of main weights (main_weights.py).
            offloaded: what lies in files.
        """
        self.names = tuple(names)
        self.drops = drops
        self.has_main = has_main
        self.offloaded = offloaded
        self.parameters = tuple(parameters)
        self.dtype = DTYPE if has_main else self.parameters[0].dtype
        """Of parts, and in which gradients are reduced."""
        self.accumulators = self.parameters
        """Tensors whose `grad` is that of the parameters, until it is reduced."""
        self.hooks: list[Any] = []  # Handles.
        if has_main:
            self.accumulators = tuple(
                nn.Parameter(stand_in(each.shape, self.dtype, each.device)) for each in parameters
            )
            self.hooks = list(map(add_up, self.parameters, self.accumulators))
        self._group = group
        self._ranks, self._rank = group.size(), group.rank()
        self._forms = list(map(Form.of, parameters))
        self._lengths = [len(part_of(each.elements, self._ranks, 0)) for each in self._forms]
        self._make_rooms()
        self._has_rows = drops or has_main  # Of its own; else they lie in the rooms.
        self._rows = [self._own(number) for number in range(len(parameters))]
        if offloaded and (has_main or (drops and offloaded.storage.level == PARAMETERS)):
            rows = [each.to(self.dtype) for each in self._rows]
            offloaded.rows = offloaded.storage.block_of(rows)
            self._rows = offloaded.rows.tensors
        elif self._has_rows:
            self._rows = [each.to(self.dtype, copy=True) for each in self._rows]
        self.parts = tuple(map(nn.Parameter, self._filled()))
        self.is_whole = True
        self._gathering: Handle[Any] | None = None
        self._reducing: Handle[list[Any]] | None = None

    @property
    def bytes(self) -> int:
        """Of the whole parameters."""
        return sum(each.nbytes for each in self._wholes)

    @property
    def bytes_of_gradients(self) -> int:
        """Of the whole parameters."""
        return sum(each.elements for each in self._forms) * self.dtype.itemsize

    @property
    def has_rows_away(self) -> bool:
        """Whether its parts are offloaded."""
        return self.offloaded is not None and self.offloaded.rows is not None

    @property
    def has_gradients_away(self) -> bool:
        """Whether its parts' gradients are offloaded."""
        return self.offloaded is not None and self.offloaded.storage.level >= GRADIENTS

    # --- Gradients ----------------------------------------------------------------------------

    def begin_reduce(self) -> None:
        """Begins to sum all ranks' gradients, and takes those of the parameters."""
        flags = torch.tensor([0.0 if each.grad is None else 1.0 for each in self.accumulators])
        if self.offloaded and self.offloaded.gradients and self.parts[0].grad is not None:
            self.offloaded.gradients.fetch()
        gradients = [self._gradient(number) for number in range(len(self.accumulators))]
        for each in self.accumulators:
            each.grad = None
        came = calls.allreduce_(flags, Sum, group=self._group)
        sums = calls.grouped_reducescatter(gradients, Sum, group=self._group)
        self._reducing = Call[Any].joined([came, sums]).start()

    def end_reduce(self) -> None:
        """Adds the sums to the parts' gradients, if that was begun. Blocks.

        A part's stays None if no rank has had one, as flags say.
        """
        if self._reducing is None:
            return
        flags, sums = self._reducing.wait()
        self._reducing = None
        pairs = zip(self.parts, flags.tolist(), sums, strict=True)
        gradients = [row[: part.numel()] if flag else None for part, flag, row in pairs]
        if self.offloaded and self.has_gradients_away:
            self.offloaded.add_gradients(self.parts, gradients)
            return
        for part, gradient in zip(self.parts, gradients, strict=True):
            if gradient is not None:
                part.grad = gradient if part.grad is None else part.grad.add_(gradient)

    def _gradient(self, number: int) -> Tensor:
        """Returns a parameter's gradient as long as its room."""
        gradient = self.accumulators[number].grad
        if gradient is None:
            return torch.zeros_like(self._rooms[number], dtype=self.dtype)
        return _padded(self._forms[number].flat(gradient), self._rooms[number].numel())

    # --- Parameters ---------------------------------------------------------------------------

    def begin_gather(self) -> None:
        """Begins to make the parameters whole, of all ranks' parts, unless that was begun."""
        if self._gathering is not None:
            return
        if self.drops:
            for room in self._rooms:
                room.untyped_storage().resize_(room.nbytes)
        rows = self._rows
        if self.offloaded and self.offloaded.rows:
            rows = self.offloaded.rows.take()
        if self.has_main:  # What is gathered is rounded first.
            rows = [self._own(number).copy_(row) for number, row in enumerate(rows)]
        gathered = map(calls.gather_into, self._rooms, rows, repeat(self._group))
        self._gathering = Call.joined(list(gathered)).start()

    def fetch(self) -> None:
        """Begins to read what a gather needs."""
        if self.offloaded and self.offloaded.rows:
            self.offloaded.rows.fetch()

    def end_gather(self) -> None:
        """The parameters are whole, if that was begun. Blocks."""
        if self._gathering is None:
            return
        self._gathering.wait()
        self._gathering = None
        for parameter, whole in zip(self.parameters, self._wholes, strict=True):
            parameter.data = whole
        self.is_whole = True
        if self.offloaded and self.offloaded.rows:
            self.offloaded.rows.drop()

    def drop(self) -> None:
        """Frees the parameters until they are gathered again; views that autograd has kept, too.

        Whoever reads one in between gets NaN. They stay if they are being gathered.
        """
        if not self.drops or not self.is_whole or self._gathering is not None:
            return
        for parameter, whole, room in zip(self.parameters, self._wholes, self._rooms, strict=True):
            parameter.data = stand_in(whole.shape, whole.dtype, whole.device, float("nan"))
            room.untyped_storage().resize_(0)
        self.is_whole = False

    def take(self) -> None:
        """Takes into the parts what the parameters are, which the user may have changed."""
        self._make_rooms()
        for number, row in enumerate(self._rows):
            own = self._own(number)
            if self.has_main:
                take_changes(row, own)
            elif self._has_rows:
                row.copy_(own)
            else:
                self._rows[number] = own
        for part, row in zip(self.parts, self._filled(), strict=True):
            part.data = row

    # --- What belongs to a parameter ------------------------------------------------------------

    def part(self, number: int) -> range:
        """Returns which elements of parameter `number`, in the order of memory, its part has."""
        return part_of(self._forms[number].elements, self._ranks, self._rank)

    @property
    def named_parts(self) -> Iterator[tuple[str, nn.Parameter]]:
        return zip(self.names, self.parts, strict=True)

    @property
    def takes_care(self) -> bool:
        """Whether this rank speaks for all of the group, of what they have alike."""
        return self._rank == 0

    def cut(self, number: int, tensor: Tensor) -> Tensor:
        """Returns this rank's part of a tensor like parameter `number`, in memory of its own."""
        part = self.part(number)
        return self._forms[number].flat(tensor)[part.start : part.stop].clone()

    def join(self, number: int, part: Tensor) -> Tensor:
        """Returns a tensor like parameter `number`, of all ranks' parts of it. Blocks."""
        form, length = self._forms[number], self._lengths[number]
        room = part.new_empty(self._ranks * length)
        calls.gather_into(room, _padded(part, length), self._group).run()
        return room.as_strided(form.shape, form.strides)

    # --- Where they lie -------------------------------------------------------------------------

    def _make_rooms(self) -> None:
        """Finds room where the parameters lie, or moves them to some."""
        self._rooms = [
            _room(each.data, self._ranks * length, self.drops)
            for each, length in zip(self.parameters, self._lengths, strict=True)
        ]
        self._wholes = [
            room.as_strided(each.shape, each.strides)
            for each, room in zip(self._forms, self._rooms, strict=True)
        ]
        for parameter, whole in zip(self.parameters, self._wholes, strict=True):
            parameter.data = whole

    def _own(self, number: int) -> Tensor:
        length = self._lengths[number]
        return self._rooms[number][self._rank * length : (self._rank + 1) * length]

    def _filled(self) -> list[Tensor]:
        """Returns of each row what is the parameter's."""
        return [row[: len(self.part(number))] for number, row in enumerate(self._rows)]


@dataclass(frozen=True, slots=True)
class Form:
    """What a parameter is as long as it is whole."""

    shape: torch.Size
    strides: tuple[int, ...]
    """Of all memory that it gets: it is dense there."""
    dtype: torch.dtype
    device: torch.device
    is_dense: bool
    requires_grad: bool

    @classmethod
    def of(cls, parameter: nn.Parameter) -> Form:
        strides = tuple(dense_strides(parameter))
        is_dense = parameter.layout == torch.strided and strides == parameter.stride()
        rest = parameter.dtype, parameter.device, is_dense, parameter.requires_grad
        return cls(parameter.shape, strides, *rest)

    @property
    def elements(self) -> int:
        return self.shape.numel()

    @property
    def dims(self) -> tuple[int, ...]:
        """As boxes of it have them: its own if it is row-major in memory, else a flat one."""
        strides = [prod(self.shape[dim + 1 :]) for dim in range(len(self.shape))]
        is_row_major = self.shape and list(self.strides) == strides
        return tuple(self.shape) if is_row_major else (self.elements,)

    def part(self, dim: int, length: int) -> Form:
        """Returns the form of a part of a row-major one."""
        shape = torch.Size([*self.shape[:dim], length, *self.shape[dim + 1 :]])
        strides = tuple(prod(shape[each + 1 :]) for each in range(len(shape)))
        return replace(self, shape=shape, strides=strides)

    def can_be_cut(self, ranks: int) -> bool:
        """Returns whether each rank can keep a part: it is dense, and not tiny."""
        return self.is_dense and self.elements >= ranks

    def empty(self, dtype: torch.dtype | None = None) -> Tensor:
        """Returns new memory for it, or for what an optimizer keeps of it."""
        return torch.empty_strided(
            self.shape, self.strides, dtype=dtype or self.dtype, device=self.device
        )

    def flat(self, tensor: Tensor) -> Tensor:
        """Returns the elements of a tensor like it, in the order of memory; a view if it can be."""
        tensor = tensor.detach()
        if tensor.layout != torch.strided:
            tensor = tensor.to_dense()
        if tensor.stride() != self.strides:
            tensor = self.empty(tensor.dtype).copy_(tensor)
        return _flat(tensor)


def part_of(elements: int, ranks: int, rank: int) -> range:
    """Returns which elements of a parameter a rank's part has."""
    length = -(-elements // ranks)
    return range(min(rank * length, elements), min((rank + 1) * length, elements))


def _flat(tensor: Tensor) -> Tensor:
    """Returns a dense tensor's elements in the order of memory, as a view."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def _padded(flat: Tensor, elements: int) -> Tensor:
    missing = elements - flat.numel()
    return nn.functional.pad(flat, (0, missing)) if missing else flat


def _room(tensor: Tensor, elements: int, alone: bool) -> Tensor:
    """Returns flat memory of so many elements that begins with the tensor's: where it lies, or new.

    Args:
        alone: nothing else lies in that memory, and it can be freed.
    """
    storage = tensor.untyped_storage()
    is_all = storage.nbytes() == elements * tensor.element_size()
    # Not where numpy has it, too, or a file; torch 2.2 cannot tell.
    is_free = not alone or (hasattr(storage, "resizable") and storage.resizable())
    if (is_all and is_free) or (tensor.numel() == elements and not alone):
        return tensor.detach().as_strided((elements,), (1,))
    room = tensor.new_zeros(elements)
    room[: tensor.numel()] = _flat(tensor)
    return room
