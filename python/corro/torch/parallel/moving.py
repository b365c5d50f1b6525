"""A training moves to another plan, in the same world or in another one.

What a rank has of the training are boxes of named, flat arrays:

    parameter/NAME      its elements in the order of memory, whole or a part; of a main weight,
                        where there is one (main_weights.py): the parameter is that, rounded
    state/KEY/NAME      what the optimizer has for each element of that parameter
    rest/NAME           what else the optimizer has of it, as a pickle
    buffer/NAME         of the stage that runs its module

    boxes_of()     what this rank has under its plan
    Offer()        all ranks tell each other what they have: is anything missing?
    move()         each rank gets what it needs under the next plan, in new memory
                   all have it: it becomes the trainer's, and nothing communicates any more

No plan of these divides tensors (tensor/): that a training does not move from, nor to.

So whatever fails before leaves a rank's training as it was; and one that has moved when another
has not still has the same training, in other boxes.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from corro import _context
from corro._contents import Contents, Piece
from corro._objects import allgather_object
from corro.elastic._state import listed
from corro.torch.checkpoint import DTYPES_BY_NUMBER, Wanted
from corro.torch.copies import Live, Place, Read
from corro.torch.parallel.sharded_optimizer import is_like
from corro.torch.parallel.shards import part_of
from corro.torch.parallel.stand_ins import stand_in
from corro.torch.parallel.tensor.choice import Choices
from corro.torch.verbs import DTYPES

if TYPE_CHECKING:
    from corro._context import Group
    from corro.planned import Planned
    from corro.torch.parallel.trainer import Trainer

_PARAMETER, _STATE, _REST, _BUFFER = "parameter", "state", "rest", "buffer"


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
    cut = {name: one for one in trainer._sharding.shards for name in one.names}
    for number, (name, parameter) in enumerate(trainer.model.named_parameters()):
        form = trainer._forms[name]
        if (shard := cut.get(name)) is not None:
            at = shard.names.index(name)
            part = shard.parts[at]
            box = _Box(name, form.elements, shard.part(at), _same)
            yield from _boxes_of(trainer, box, part, with_rest=not once or shard.takes_care)
        elif not trainer._is_released(name) and (not once or trainer._speaks_for(name, number)):
            whole = form.elements
            box = _Box(name, whole, range(whole), form.flat)
            stepped = trainer._mains.mains.get(name, parameter)
            yield from _boxes_of(trainer, box, stepped, with_rest=True)
    for name, buffer in trainer.model.named_buffers():
        stage = trainer._stage_of_buffer(name)
        if stage == trainer._stage_number and (not once or trainer._seats.data == 0):
            yield from _whole(f"{_BUFFER}/{name}", buffer.detach().reshape(-1))


@dataclass(frozen=True, slots=True)
class _Box:
    name: str
    whole: int
    own: range
    flat: Callable[[Tensor], Tensor]

    def piece(self, kind: str, tensor: Tensor) -> Iterator[Piece]:
        if len(self.own):
            begin, length, flat = [self.own.start], [len(self.own)], self.flat(tensor)
            yield Piece(
                f"{kind}/{self.name}", DTYPES[flat.dtype], [self.whole], begin, length, flat
            )


def _boxes_of(trainer: Trainer, box: _Box, stepped: Tensor, *, with_rest: bool) -> Iterator[Piece]:
    """Yields what there is of a parameter or of a part of one, which the optimizer steps."""
    yield from box.piece(_PARAMETER, stepped)
    state: Mapping[Any, Any] = trainer.optimizer.state.get(stepped, {})
    rest: dict[Any, _Value | None] = {}
    for key, value in state.items():
        if is_like(key, value, stepped):
            rest[key] = None
            yield from box.piece(f"{_STATE}/{key}", value)
        elif isinstance(value, Tensor):
            rest[key] = _Value(value.cpu(), not value.is_cpu)
        else:
            rest[key] = _Value(value, False)
    if rest and with_rest:
        data = bytearray(pickle.dumps(rest))
        yield from _whole(f"{_REST}/{box.name}", torch.frombuffer(data, dtype=torch.uint8))


def _whole(name: str, flat: Tensor) -> Iterator[Piece]:
    if flat.numel():
        yield Piece(name, DTYPES[flat.dtype], [flat.numel()], [0], [flat.numel()], flat)


def _same(tensor: Tensor) -> Tensor:
    return tensor.detach()


# --- What ranks have together ---------------------------------------------------------------------

_Row = tuple[str, int, int, int, int]  # Name, dtype, elements, first one, number.


class Offer:
    """What the ranks of a world have together. All ranks make it, and have the same then."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        """`pieces`: this rank's; none if it has nothing. All are of the same moment. Blocks."""
        self._pieces = list(pieces)
        rows = [(one.name, one.dtype, *one.whole, *one.offsets, *one.shape) for one in self._pieces]
        self._table: list[list[_Row]] = allgather_object(rows)

    def lack(self, trainer: Trainer) -> str:
        """Returns what is missing of the training, for people; "" if nothing is."""
        runs: dict[str, set[tuple[int, int]]] = defaultdict(set)
        wholes: dict[str, int] = {}
        for name, _, whole, begin, length in (row for rows in self._table for row in rows):
            runs[name].add((begin, begin + length))
            wholes[name] = whole
        needed = {f"{_PARAMETER}/{name}" for name, form in trainer._forms.items() if form.elements}
        buffers = trainer.model.named_buffers()
        needed |= {f"{_BUFFER}/{name}" for name, buffer in buffers if buffer.numel()}
        parts = [name for name, whole in wholes.items() if _covered(runs[name]) < whole]
        return listed(sorted(needed - wholes.keys()) + parts)

    def read(self, alike: Any = None) -> Read:
        """Returns it as a source; `alike`: what all ranks have alike, besides."""
        holders: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
        for rank, rows in enumerate(self._table):
            for at, row in enumerate(rows):
                holders[row].append((rank, at))
        places: list[list[Place]] = [[] for _ in self._table]
        for number, ((name, dtype, whole, begin, length), having) in enumerate(holders.items()):
            # Those of a buffer may differ: each has seen samples of its own.
            rank, at = having[0 if name.startswith(_BUFFER) else number % len(having)]
            places[rank].append(Place(name, dtype, (whole,), (begin,), (length,), at))
        live = Live([one.source for one in self._pieces])
        told = [[(rank, theirs)] for rank, theirs in enumerate(places)]
        return Read({_context.rank(): live}, told, ("", alike))


def _covered(runs: Iterable[tuple[int, int]]) -> int:
    covered = end = 0
    for first, last in sorted(runs):
        covered += max(0, last - max(first, end))
        end = max(end, last)
    return covered


# --- What a rank gets -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Received:
    parameters: dict[str, Tensor] = field(default_factory=dict)
    states: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    rests: dict[str, Tensor] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)


def move(trainer: Trainer, planned: Planned, group: Group, read: Read) -> None:
    """Moves to this plan of the group, with what the ranks have together. Blocks.

    If it fails, the trainer has the training as before.
    """
    loaded = trainer._load(planned, group)
    stage, data = divmod(loaded.group.rank(), planned.decisions.shape.data)
    received = _receive(trainer, planned, stage, data, read)
    _context.barrier(group)
    _let_go(trainer)
    _adopt(trainer, received)
    trainer._follow(planned, group, loaded, Choices({}))
    trainer._adopt_main_weights(received.parameters)
    _adopt_state(trainer, received)
    trainer._whole = False
    trainer._sharding.drop()


def empty(trainer: Trainer, planned: Planned, group: Group) -> None:
    """Goes over to this plan, with memory for the whole model, which is yet to be loaded."""
    loaded = trainer._load(planned, group)
    _context.barrier(group)
    _let_go(trainer)
    _adopt(trainer, _Received({name: form.empty() for name, form in trainer._forms.items()}))
    trainer._follow(planned, group, loaded, Choices({}))
    trainer._whole = True


def _receive(trainer: Trainer, planned: Planned, stage: int, data: int, read: Read) -> _Received:
    users = trainer._users_of_parameters(planned)
    cut = set(trainer._cut_under(planned, stage, trainer._forms))
    received, wanted = _Received(), []
    buffers = dict(trainer.model.named_buffers())
    ranks = planned.decisions.shape.data
    for number, (name, dtype_number, (whole,)) in enumerate(read.tensors):
        kind, _, of = name.partition("/")
        dtype, run = DTYPES_BY_NUMBER[dtype_number], range(whole)
        if kind == _BUFFER:
            flat = torch.empty(whole, dtype=dtype, device=buffers[of].device)
            received.buffers[of] = flat
            wanted.append(Wanted(number, [0], [whole], flat))
            continue
        key, _, of = of.partition("/") if kind == _STATE else ("", "", of)
        if of in users and stage not in users[of]:
            continue
        form = trainer._forms[of]
        if kind == _REST:
            flat = received.rests[of] = torch.empty(whole, dtype=dtype)
        elif kind == _STATE and of in cut:
            run = part_of(whole, ranks, data)
            flat = torch.empty(len(run), dtype=dtype, device=form.device)
            received.states.setdefault(of, {})[key] = flat
        else:
            made = form.empty(dtype)
            flat = form.flat(made)
            if kind == _STATE:
                received.states.setdefault(of, {})[key] = made
            else:
                received.parameters[of] = made
        wanted.append(Wanted(number, [run.start], [len(run)], flat))
    read.fill(wanted)
    return received


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
        if name in received.parameters:
            parameter.data = received.parameters[name].to(form.dtype)
        elif form.elements:
            parameter.data = stand_in(form.shape, form.dtype, form.device)
    with torch.no_grad():
        for name, buffer in trainer.model.named_buffers():
            if name in received.buffers:
                buffer.copy_(received.buffers[name].view(buffer.shape))


def _adopt_state(trainer: Trainer, received: _Received) -> None:
    stepped = dict(trainer.model.named_parameters()) | trainer._mains.mains
    for shard in trainer._sharding.shards:
        stepped.update(shard.named_parts)
    for name, data in received.rests.items():
        device, likes = trainer._forms[name].device, received.states.get(name, {})
        rest: dict[Any, _Value | None] = pickle.loads(data.numpy().tobytes())
        trainer.optimizer.state[stepped[name]] = {
            key: likes[key] if value is None else _placed(value, device)
            for key, value in rest.items()
        }


def _placed(value: _Value, device: torch.device) -> Any:
    return value.value.to(device) if value.is_on_device else value.value
