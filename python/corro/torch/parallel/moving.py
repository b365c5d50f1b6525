"""A training moves to another plan, in the same world or in another one.

What a rank has of the training are boxes of named arrays:

    parameter/NAME      its elements, whole or a part (boxes.py); of a main weight, where there
                        is one (main_weights.py): the parameter is that, rounded
    state/KEY/NAME      what the optimizer has for each element of that parameter
    rest/NAME           what else the optimizer has of it, as a pickle
    buffer/NAME         of the stage that runs its module

    boxes_of()     what this rank has under its plan
    Offer()        all ranks tell each other what they have: is anything missing?
    move()         each rank gets what it needs under the next plan, in new memory, or in files
                   all have it: it becomes the trainer's, and nothing communicates any more

So whatever fails before leaves a rank's training as it was; and one that has moved when another
has not still has the same training, in other boxes.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from corro import _context
from corro._contents import Contents, Piece
from corro._objects import allgather_object
from corro.elastic._state import listed
from corro.torch.checkpoint import DTYPES_BY_NUMBER, Wanted
from corro.torch.copies import Live, Place, Read
from corro.torch.parallel.boxes import Run, covered
from corro.torch.parallel.offloaded_optimizer import put_state_away
from corro.torch.parallel.seats import Seats
from corro.torch.parallel.sharded_optimizer import is_like
from corro.torch.parallel.sharding import dropped_under, level_of
from corro.torch.parallel.shards import part_of
from corro.torch.parallel.stand_ins import stand_in
from corro.torch.parallel.tensor.choice import Choices
from corro.torch.parallel.tensor.division import Axis
from corro.torch.verbs import DTYPES

if TYPE_CHECKING:
    from corro._context import Group
    from corro.planned import Planned
    from corro.torch.parallel.trainer import Trainer

_PARAMETER, _STATE, _REST, _BUFFER = "parameter", "state", "rest", "buffer"
_ROUND = 64 << 20  # Bytes that are sent at a time, of all ranks; more of a tensor that is larger.


class Boxes(Contents):
    """This rank's boxes as an image has them: each element is in the image of one rank."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__({})
        self._trainer = trainer

    def pieces(self, group: Group) -> list[Piece]:
        del group
        return list(boxes_of(self._trainer, once=True))


# --- What a rank has ------------------------------------------------------------------------------


class _Value(NamedTuple):
    """Of an optimizer's state, where it has no number for each element of the parameter."""

    value: Any
    is_on_device: bool


def boxes_of(trainer: Trainer, *, once: bool = False) -> Iterator[Piece]:
    """Yields what this rank has; if `once`, each element on one of the ranks that have it."""
    trainer._take()
    cut = {name: one for one in trainer._sharding.shards for name in one.names}
    parts = dict(zip(trainer._parts.names, trainer._parts.parts, strict=True))
    for number, (name, parameter) in enumerate(trainer.model.named_parameters()):
        form, division = trainer._forms[name], trainer._parts.divisions.get(name)
        # Of ranks that have the same.
        speaks = not once or trainer._seats.speaks_on_axis(number)
        if (shard := cut.get(name)) is not None:
            at = shard.names.index(name)
            own = _Own(name, Run(form.dims, shard.part(at), division), _same)
            if speaks or division is not None:
                takes_care = speaks and (not once or shard.takes_care)
                yield from _boxes_of(trainer, own, shard.parts[at], with_rest=takes_care)
        elif trainer._is_released(name) or (once and not trainer._speaks_for(name, number)):
            continue
        elif division is not None:
            part = trainer._mains.mains.get(name, parts[name])
            own = _Own(name, Run(form.dims, range(part.numel()), division), _flat)
            yield from _boxes_of(trainer, own, part, with_rest=speaks)
        elif speaks:
            own = _Own(name, Run(form.dims, range(form.elements)), form.flat)
            stepped = trainer._mains.mains.get(name, parameter)
            yield from _boxes_of(trainer, own, stepped, with_rest=True)
    is_first = trainer._seats.data == trainer._seats.tensor == 0
    for name, buffer in trainer.model.named_buffers():
        if trainer._stage_of_buffer(name) == trainer._stage_number and (not once or is_first):
            yield from _whole(f"{_BUFFER}/{name}", _flat(buffer))


@dataclass(frozen=True, slots=True)
class _Own:
    """What a rank has of a parameter."""

    name: str
    run: Run
    flat: Callable[[Tensor], Tensor]

    def pieces(self, kind: str, tensor: Tensor) -> Iterator[Piece]:
        name, dtype = f"{kind}/{self.name}", DTYPES[tensor.dtype]
        for offsets, box in self.run.boxes(self.flat(tensor)):
            yield Piece(name, dtype, self.run.whole, offsets, list(box.shape), box)


def _boxes_of(trainer: Trainer, own: _Own, stepped: Tensor, *, with_rest: bool) -> Iterator[Piece]:
    """Yields what there is of a parameter or of a part of one, which the optimizer steps."""
    yield from own.pieces(_PARAMETER, stepped)
    state: Mapping[Any, Any] = trainer.optimizer.state.get(stepped, {})
    rest: dict[Any, _Value | None] = {}
    for key, value in state.items():
        if is_like(key, value, stepped):
            rest[key] = None
            yield from own.pieces(f"{_STATE}/{key}", value)
        elif isinstance(value, Tensor):
            rest[key] = _Value(value.cpu(), not value.is_cpu)
        else:
            rest[key] = _Value(value, False)
    if rest and with_rest:
        data = bytearray(pickle.dumps(rest))
        yield from _whole(f"{_REST}/{own.name}", torch.frombuffer(data, dtype=torch.uint8))


def _whole(name: str, flat: Tensor) -> Iterator[Piece]:
    if flat.numel():
        yield Piece(name, DTYPES[flat.dtype], [flat.numel()], [0], [flat.numel()], flat)


def _same(tensor: Tensor) -> Tensor:
    return tensor.detach()


def _flat(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1)


# --- What ranks have together ---------------------------------------------------------------------

_Dims = tuple[int, ...]
_Row = tuple[str, int, _Dims, _Dims, _Dims]  # Name, dtype, the whole's shape, a box of it.


class Offer:
    """What the ranks of a world have together. All ranks make it, and have the same then."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        """`pieces`: this rank's; none if it has nothing. All are of the same moment. Blocks."""
        self._pieces = list(pieces)
        rows = [
            (one.name, one.dtype, tuple(one.whole), tuple(one.offsets), tuple(one.shape))
            for one in self._pieces
        ]
        self._table: list[list[_Row]] = allgather_object(rows)

    def lack(self, trainer: Trainer) -> str:
        """Returns what is missing of the training, for people; "" if nothing is."""
        boxes: dict[str, set[tuple[_Dims, _Dims]]] = defaultdict(set)
        wholes: dict[str, int] = {}
        for name, _, whole, offsets, shape in (row for rows in self._table for row in rows):
            boxes[name].add((offsets, shape))
            wholes[name] = prod(whole)
        needed = {f"{_PARAMETER}/{name}" for name, form in trainer._forms.items() if form.elements}
        buffers = trainer.model.named_buffers()
        needed |= {f"{_BUFFER}/{name}" for name, buffer in buffers if buffer.numel()}
        parts = [name for name, whole in wholes.items() if covered(frozenset(boxes[name])) < whole]
        return listed(sorted(needed - wholes.keys()) + parts)

    def read(self, alike: Any = None) -> Read:
        """Returns it as a source; `alike`: what all ranks have alike, besides."""
        holders: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
        for rank, rows in enumerate(self._table):
            for at, row in enumerate(rows):
                holders[row].append((rank, at))
        places: list[list[Place]] = [[] for _ in self._table]
        for number, (row, having) in enumerate(holders.items()):
            # Those of a buffer may differ: each has seen samples of its own.
            rank, at = having[0 if row[0].startswith(_BUFFER) else number % len(having)]
            places[rank].append(Place(*row, at))
        live = Live([one.source for one in self._pieces])
        told = [[(rank, theirs)] for rank, theirs in enumerate(places)]
        return Read({_context.rank(): live}, told, ("", alike))


# --- What a rank gets -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Received:
    parameters: dict[str, Tensor] = field(default_factory=dict)
    parts: dict[str, Tensor] = field(default_factory=dict)
    """Of parameters that are never whole under the next plan."""
    states: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    rests: dict[str, Tensor] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)


def move(trainer: Trainer, planned: Planned, choices: Choices, group: Group, read: Read) -> None:
    """Moves to this plan of the group, with what the ranks have together. Blocks.

    If it fails, the trainer has the training as before.
    """
    loaded = trainer._load(planned, group)
    seats = Seats(planned.decisions.shape, loaded.group.ranks, loaded.group.rank())
    needs = _Needs(trainer, planned, choices, seats)
    for numbers in _rounds(read.tensors):
        read.fill([each for number in numbers for each in needs.of(number, read.tensors[number])])
    received = needs.received
    _context.barrier(group)
    _let_go(trainer)
    _adopt(trainer, received)
    trainer._follow(planned, group, loaded, choices)
    trainer._adopt_main_weights(received.parameters)
    trainer._sharding.adopt_parts(received.parts)
    _adopt_state(trainer, received)
    trainer._whole = False
    trainer._sharding.drop()
    trainer._parts.drop()


def empty(trainer: Trainer, planned: Planned, choices: Choices, group: Group) -> None:
    """Goes over to this plan, with memory for the whole model, which is yet to be loaded."""
    loaded = trainer._load(planned, group)
    _context.barrier(group)
    _let_go(trainer)
    _adopt(trainer, _Received({name: form.empty() for name, form in trainer._forms.items()}))
    trainer._follow(planned, group, loaded, choices)
    trainer._whole = True
    if trainer._sharding.misses_some:
        trainer._release()


class _Needs:
    """What this rank needs under a plan, and room for it, which is `received`.

    Of parameters that the plan drops behind calls, and of states, that is this rank's part, in
    files if the plan offloads; other parameters are whole.
    """

    def __init__(self, trainer: Trainer, planned: Planned, choices: Choices, seats: Seats) -> None:
        self.received = _Received()
        self._wholes, self._seats, shape = trainer._forms, seats, seats.shape
        self._users = users = trainer._users_of_parameters(planned)
        self._buffers = dict(trainer.model.named_buffers())
        axis = Axis(seats.tensor, shape.tensor, None)
        self._divisions = {
            name: choice.of(self._wholes[name].shape, axis)
            for name, choice in choices.parameters.items()
            if users.get(name) == (seats.stage,)
        }
        self._forms = self._wholes | {
            name: self._wholes[name].part(of.dim, of.own) for name, of in self._divisions.items()
        }
        self._cut = set(trainer._cut_under(planned, seats.stage, self._forms))
        layers = trainer._layers_of(planned.decisions.stages[seats.stage])
        named = trainer.model.named_parameters()
        cut = {name: each for name, each in named if name in self._cut}
        self._dropped = dropped_under(level_of(shape), layers, cut)
        self._scratch = trainer._planning.scratch(planned)

    def of(self, number: int, tensor: tuple[str, int, list[int]]) -> Iterator[Wanted]:
        """Yields the boxes that are needed of a tensor, with room for them; `number`: of it."""
        name, dtype_number, shape = tensor
        kind, _, of = name.partition("/")
        key, _, of = of.partition("/") if kind == _STATE else ("", "", of)
        dtype = DTYPES_BY_NUMBER[dtype_number]
        run, received = Run(tuple(shape), range(prod(shape))), self.received
        if kind == _BUFFER:
            flat = torch.empty(shape, dtype=dtype, device=self._buffers[of].device)
            received.buffers[of] = flat
        elif of in self._users and self._seats.stage not in self._users[of]:
            return
        elif kind == _REST:
            flat = received.rests[of] = torch.empty(shape, dtype=dtype)
        elif kind == _PARAMETER and of not in self._dropped:
            made = received.parameters[of] = self._wholes[of].empty(dtype)
            flat = self._wholes[of].flat(made)
        else:
            made, flat, own = self._part(of, dtype)
            run = Run(run.whole, own, self._divisions.get(of))
            if kind == _PARAMETER:
                received.parts[of] = made
            else:
                received.states.setdefault(of, {})[key] = made
        for offsets, box in run.boxes(flat):
            yield Wanted(number, offsets, list(box.shape), box)

    def _part(self, name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, range]:
        """Returns room for this rank's part, the same flat, and which elements it has."""
        form = self._forms[name]
        if name not in self._cut:
            made = form.empty(dtype)
            return made, form.flat(made), range(form.elements)
        own = part_of(form.elements, self._seats.shape.data, self._seats.data)
        if self._scratch is not None:
            flat = self._scratch.empty(len(own), dtype)
        else:
            flat = torch.empty(len(own), dtype=dtype, device=form.device)
        return flat, flat, own


def _rounds(tensors: Sequence[tuple[str, int, list[int]]]) -> Iterator[list[int]]:
    """Yields the numbers of tensors that are sent at a time, since all that is lies in memory."""
    numbers: list[int] = []
    size = 0
    for number, (_, dtype, shape) in enumerate(tensors):
        own = prod(shape) * DTYPES_BY_NUMBER[dtype].itemsize
        if numbers and size + own > _ROUND:
            yield numbers
            numbers, size = [], 0
        numbers.append(number)
        size += own
    yield numbers


def _let_go(trainer: Trainer) -> None:
    """The optimizer steps whole parameters, and has no state of them."""
    if trainer._lives:
        trainer._leave_plan(join=False)
    trainer.optimizer.zero_grad(set_to_none=True)
    for parameter in trainer.model.parameters():
        trainer.optimizer.state.pop(parameter, None)


def _adopt(trainer: Trainer, received: _Received) -> None:
    for name, parameter in trainer.model.named_parameters():
        form = trainer._forms[name]
        if name in received.parts:
            parameter.data = form.empty()  # Nobody reads it, so that it takes no memory.
        elif name in received.parameters:
            parameter.data = received.parameters[name].to(form.dtype)
        elif form.elements:
            parameter.data = stand_in(form.shape, form.dtype, form.device)
    with torch.no_grad():
        for name, buffer in trainer.model.named_buffers():
            if name in received.buffers:
                buffer.copy_(received.buffers[name].view(buffer.shape))


def _adopt_state(trainer: Trainer, received: _Received) -> None:
    stepped = dict(trainer.model.named_parameters())
    stepped.update(zip(trainer._parts.names, trainer._parts.parts, strict=True))
    stepped.update(trainer._mains.mains)
    for shard in trainer._sharding.shards:
        stepped.update(shard.named_parts)
    for name, data in received.rests.items():
        device, likes = trainer._forms[name].device, received.states.get(name, {})
        rest: dict[Any, _Value | None] = pickle.loads(data.numpy().tobytes())
        trainer.optimizer.state[stepped[name]] = {
            key: likes[key] if value is None else _placed(value, device)
            for key, value in rest.items()
        }
    for shard in trainer._sharding.shards:
        if shard.offloaded is not None:
            put_state_away(trainer.optimizer, shard.offloaded, shard.parts)
            shard.offloaded.settle()


def _placed(value: _Value, device: torch.device) -> Any:
    return value.value.to(device) if value.is_on_device else value.value
