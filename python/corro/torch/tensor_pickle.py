"""Pickles of objects with tensors in them: the tensors' bytes stand apart, in row-major order.

So the pickle is small, and the bytes are broadcast as one tensor. Tensors that are not simply dense
(sparse, quantized, subclasses) are pickled as torch does it.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

_ALIGNMENT = 64  # Bytes; of every tensor among the bytes.


@dataclass(frozen=True, slots=True)
class _Place:
    """A tensor in a pickle: where its bytes are."""

    index: int
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    on_host: bool
    requires_grad: bool
    is_parameter: bool


class Packed:
    """A pickle, and the tensors that it speaks of."""

    def __init__(self, obj: Any, pickler: type[pickle.Pickler] = pickle.Pickler) -> None:
        """`pickler` writes everything but the tensors; what it cannot write is its error."""
        self.tensors: list[Tensor] = []
        self._places: dict[int, _Place] = {}
        self.bytes = 0  # Of all tensors.
        file = io.BytesIO()
        writer: Any = type(
            "Pickler", (pickler,), {"persistent_id": lambda _, one: self._place(one)}
        )
        writer(file, pickle.HIGHEST_PROTOCOL).dump(obj)
        self.pickle = file.getvalue()

    def fill(self, memory: Tensor) -> None:
        """Copies the tensors to where their bytes belong."""
        for tensor, place in zip(self.tensors, self._places.values(), strict=True):
            _part(memory, place).copy_(tensor.detach())

    def _place(self, obj: Any) -> _Place | None:
        if not _is_simple(obj):
            return None
        place = self._places.get(id(obj))
        if place is None:
            place = _Place(
                index=len(self.tensors),
                offset=self.bytes,
                dtype=obj.dtype,
                shape=tuple(obj.shape),
                on_host=obj.is_cpu,
                requires_grad=obj.requires_grad,
                is_parameter=isinstance(obj, torch.nn.Parameter),
            )
            self._places[id(obj)] = place
            self.tensors.append(obj)
            size = obj.numel() * obj.element_size()
            self.bytes += -(-size // _ALIGNMENT) * _ALIGNMENT
        return place


class Unpacked:
    """What was packed elsewhere."""

    def __init__(self, data: bytes, memory: Tensor) -> None:
        self._memory = memory
        self._made: dict[int, Tensor] = {}
        self.on_device: set[int] = set()  # Ids of tensors that were not the host's where packed.
        reader: Any = type("Unpickler", (pickle.Unpickler,), {"persistent_load": self._load})
        self.object: Any = reader(io.BytesIO(data)).load()

    def _load(self, place: _Place) -> Tensor:
        made = self._made.get(place.index)
        if made is None:
            made = _part(self._memory, place).clone().requires_grad_(place.requires_grad)
            if place.is_parameter:
                made = torch.nn.Parameter(made.detach(), place.requires_grad)
            self._made[place.index] = made
            if not place.on_host:
                self.on_device.add(id(made))
        return made


def _is_simple(obj: Any) -> bool:
    simple = type(obj) in (torch.Tensor, torch.nn.Parameter) and obj.layout == torch.strided
    return simple and not (obj.is_quantized or obj.is_meta)


def _part(memory: Tensor, place: _Place) -> Tensor:
    """Returns the tensor that the bytes at this place are."""
    size = place.dtype.itemsize
    for dim in place.shape:
        size *= dim
    return memory[place.offset : place.offset + size].view(place.dtype).view(place.shape)
