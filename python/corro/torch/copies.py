"""Copies of a sharded state in the memory of other ranks, from which a new world puts it together.

A *generation* is the state after so many steps, as the ranks of one epoch had it: an image for each
rank, with the pieces of tensors that it takes care of. Each element is in one image. A rank keeps
its own image and that of one other rank, on another host if there is one:

    take()      each rank    copies its pieces into its image
                all ranks    send their images on, each to one rank
                all ranks    tell each other that all have theirs; older generations go

A rank that is lost in the middle leaves two generations: the new one may be whole, and the old one
is. A rank that has dropped the old one knows that all have the new one. So the newest generation of
which the ranks that are left have all images is that of a step which all had committed.

    Found()     all ranks    tell each other which images they have, and choose the generation
    read()      all ranks    tell each other which boxes they need, and send those
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from corro import _context
from corro._objects import allgather_object, broadcast_object
from corro.torch import verbs
from corro.torch.checkpoint import DTYPES_BY_NUMBER, Wanted, copy_pieces

if TYPE_CHECKING:
    from torch import Tensor

    from corro._contents import Contents, Piece

_ALIGNMENT = 64  # Bytes; of each piece in an image.
_ROUND = 64 << 20  # Bytes of an image that are sent at a time.
_LENGTH = 8  # Bytes of the length of an image's head.

Empty = Callable[[int], "Tensor"]
"""Returns so many bytes of the host's memory, or of a mapped file."""


def _in_memory(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cpu")


class Generation(NamedTuple):
    """Which one: of several that are whole the greatest counts."""

    number: int  # In the job. One that was not finished may have the number of a later one.
    epoch: int
    size: int  # Ranks of that epoch: images that there are.
    steps: int  # That the state comes after.


class Place(NamedTuple):
    """A piece in an image; `at`: the byte at which it begins, behind the head."""

    name: str
    dtype: int
    whole: tuple[int, ...]
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    at: int


class _Image:
    """A rank's pieces in one stretch of memory: length of the head, the head as a pickle, the data.

    Immutable.
    """

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        length = int.from_bytes(memory[:_LENGTH].numpy().tobytes(), "little")
        head = memory[_LENGTH : _LENGTH + length].numpy().tobytes()
        self.places: list[Place] = pickle.loads(head)
        self._begin = _aligned(_LENGTH + length)

    @classmethod
    def of(cls, pieces: Sequence[Piece], empty: Empty) -> _Image:
        """Copies the pieces into new memory."""
        places, end = [], 0
        for piece in pieces:
            box = tuple(piece.whole), tuple(piece.offsets), tuple(piece.shape)
            places.append(Place(piece.name, piece.dtype, *box, end))
            end += _aligned(piece.source.numel() * piece.source.element_size())
        head = pickle.dumps(places)
        begin = _aligned(_LENGTH + len(head))
        memory = empty(begin + end)
        text = bytearray(len(head).to_bytes(_LENGTH, "little") + head)
        memory[: len(text)] = torch.frombuffer(text, dtype=torch.uint8)
        copy_pieces(pieces, memory, [begin + place.at for place in places])
        return cls(memory)

    def piece(self, place: Place) -> Tensor:
        """Returns the piece's elements."""
        dtype = DTYPES_BY_NUMBER[place.dtype]
        size = torch.Size(place.shape).numel() * dtype.itemsize
        begin = self._begin + place.at
        return self.memory[begin : begin + size].view(dtype).view(place.shape)


class Live:
    """A rank's pieces as they lie, without a copy: `at` of a place is their number."""

    def __init__(self, pieces: Sequence[Tensor]) -> None:
        self._pieces = pieces

    def piece(self, place: Place) -> Tensor:
        """Returns the piece's elements, in the host's memory."""
        return self._pieces[place.at].cpu()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


@dataclass(slots=True)
class _Kept:
    """What this rank has of a generation."""

    images: dict[int, _Image]  # By the rank of that epoch.
    root: Any  # What all ranks have alike.


class Copies:
    """The generations of which this rank has images. Externally synchronized."""

    def __init__(self) -> None:
        self._kept: dict[Generation, _Kept] = {}

    @property
    def bytes(self) -> int:
        """The memory that the images take."""
        images = [image for kept in self._kept.values() for image in kept.images.values()]
        return sum(image.memory.numel() for image in images)

    def take(
        self,
        contents: Contents,
        number: int,
        steps: int,
        alike: Any,
        *,
        is_kept: bool,
        empty: Empty | None = None,
    ) -> None:
        """Makes a generation of the state. Blocks until all ranks have called it, and have it.

        Args:
            contents: the state.
            number: the generation's, greater than that of any that is whole.
            steps: that the state comes after.
            alike: what all ranks have alike, besides.
            is_kept: another rank keeps a copy, too; else only this one does.
            empty: gives what images lie in; None: memory.
        """
        world, empty = _context.world(), empty or _in_memory
        images = {world.rank(): _Image.of(contents.pieces(world), empty)}
        if is_kept and world.size() > 1:
            images.update(_pass_on(images[world.rank()], empty))
        generation = Generation(number, _context.epoch(), world.size(), steps)
        self._kept[generation] = _Kept(images, (contents.values, alike))
        _context.barrier()
        self._kept = {generation: self._kept[generation]}

    def clear(self) -> None:
        """Forgets all of them."""
        self._kept.clear()


def _pass_on(image: _Image, empty: Empty) -> dict[int, _Image]:
    """Sends the image to the rank that keeps it; returns what comes, by the rank that has sent."""
    world, shift = _context.world(), shift_of(_context.nodes())
    keeper, sender = ((world.rank() + by) % world.size() for by in (shift, -shift))
    sizes = [row[0] for row in _context.exchange(world, [image.memory.numel()])]
    memory = empty(sizes[sender])
    for begin in range(0, max(sizes), _ROUND):
        part = image.memory[begin : begin + _ROUND]
        splits = [0] * world.size()
        splits[keeper] = part.numel()
        came, _ = verbs.alltoall(part, splits)
        memory[begin : begin + came.numel()] = came
    return {sender: _Image(memory)}


def shift_of(nodes: Sequence[int]) -> int:
    """Returns how many ranks further a rank's copy is kept: for most of them on another host.

    `nodes`: the host of each rank; there are two ranks or more.
    """

    def others(shift: int) -> int:
        return sum(nodes[rank - shift] != node for rank, node in enumerate(nodes))

    return max(range(1, len(nodes)), key=lambda shift: (others(shift), -shift))


class Found:
    """What the ranks of a world have together. All ranks make it, and have the same then."""

    def __init__(self, copies: Copies) -> None:
        mine = [(key, list(kept.images)) for key, kept in copies._kept.items()]
        table: list[list[tuple[Generation, list[int]]]] = allgather_object(mine)
        self._copies = copies
        self._holders: dict[Generation, dict[int, int]] = defaultdict(dict)
        for rank, rows in enumerate(table):
            for generation, owners in rows:
                for owner in owners:  # The first of them is the rank's own.
                    if owner == owners[0] or owner not in self._holders[generation]:
                        self._holders[generation][owner] = rank
        whole = [key for key, holders in self._holders.items() if len(holders) == key.size]
        self.generation = max(whole, default=None)
        """The newest that is whole; None: none is."""

    @property
    def is_empty(self) -> bool:
        """Whether no rank has anything."""
        return not self._holders

    @property
    def lack(self) -> str:
        """What is missing of the newest generation, for people."""
        newest = max(self._holders)
        lost = [str(rank) for rank in range(newest.size) if rank not in self._holders[newest]]
        parts = f"the part of rank {lost[0]}" if len(lost) == 1 else f"parts of {', '.join(lost)}"
        return (
            f"{parts} of the state after {newest.steps} steps is lost: the rank, of the"
            f" {newest.size} in epoch {newest.epoch}, and the one that kept its copy"
        )

    def read(self) -> Read:
        """Returns the generation's tensors, for read_tree()."""
        assert self.generation is not None
        holders, me = self._holders[self.generation], _context.rank()
        kept = self._copies._kept.get(self.generation)
        images = {
            owner: kept.images[owner] for owner, rank in holders.items() if rank == me and kept
        }
        places = allgather_object([(owner, image.places) for owner, image in images.items()])
        root = min(holders[owner] for owner in holders)
        told = broadcast_object(kept.root if kept is not None else None, root)
        return Read(images, places, told)


class Read:
    """A generation that is read: as an opened checkpoint, but that all ranks read together."""

    def __init__(
        self,
        images: Mapping[int, _Image | Live],
        places: list[list[tuple[int, list[Place]]]],
        told: tuple[str, Any],
    ) -> None:
        self._images = images
        self._places: list[dict[str, list[tuple[int, Place]]]] = []  # By rank, and by tensor.
        known: dict[str, tuple[int, list[int]]] = {}
        for rows in places:
            by_name: dict[str, list[tuple[int, Place]]] = defaultdict(list)
            for owner, of_image in rows:
                for place in of_image:
                    by_name[place.name].append((owner, place))
                    known[place.name] = place.dtype, list(place.whole)
            self._places.append(by_name)
        self.values, self.alike = told
        self.tensors = [(name, dtype, shape) for name, (dtype, shape) in sorted(known.items())]

    def fill(self, wanted: Sequence[Wanted]) -> None:
        """Fills the boxes. Blocks until all ranks have called it."""
        boxes = [(self.tensors[one.tensor][0], one.offsets, one.lengths) for one in wanted]
        everyone = allgather_object(boxes)
        parts: list[Tensor] = []
        splits = []
        me = _context.rank()
        for theirs in everyone:
            mine = [
                _bytes_of(self._images[owner].piece(place)[_slices(common, place.offsets)])
                for _, owner, place, common in _common(theirs, self._places[me])
            ]
            parts += mine
            splits.append(sum(part.numel() for part in mine))
        came, _ = verbs.alltoall(torch.cat([torch.empty(0, dtype=torch.uint8), *parts]), splits)
        at = 0
        for places in self._places:
            for number, _, _, common in _common(boxes, places):
                local = wanted[number].local
                target = local[_slices(common, wanted[number].offsets)]
                size = target.numel() * target.element_size()
                # A copy: what came lies anywhere, and elements have to be aligned.
                target.copy_(came[at : at + size].clone().view(local.dtype).view(target.shape))
                at += size


_Box = tuple[str, Sequence[int], Sequence[int]]  # Name, offsets, lengths.
_Common = list[tuple[int, int]]  # Begin and end for each dim, in the whole tensor.


def _common(
    boxes: Sequence[_Box], places: dict[str, list[tuple[int, Place]]]
) -> Iterator[tuple[int, int, Place, _Common]]:
    """Yields what the boxes have in common with places: in the same order on both sides."""
    for number, (name, offsets, lengths) in enumerate(boxes):
        for owner, place in places.get(name, ()):
            common = [
                (max(a, b), min(a + n, b + m))
                for a, n, b, m in zip(offsets, lengths, place.offsets, place.shape, strict=True)
            ]
            if all(begin < end for begin, end in common):
                yield number, owner, place, common


def _slices(common: _Common, offsets: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(a - o, b - o) for (a, b), o in zip(common, offsets, strict=True))


def _bytes_of(box: Tensor) -> Tensor:
    return box.contiguous().view(-1).view(torch.uint8)
