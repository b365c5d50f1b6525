"""Sharded tensors (torch's DTensor): which box of the whole tensor a rank has.

    layout = layout_of(param)        # None: a plain tensor, of which each rank has the whole
    layout.offsets, layout.lengths   # this rank's box, by the index in the whole tensor

A mesh of devices has axes, and for each of them a tensor has a placement: cut along one of its
dims, or the same on all ranks of the axis. A rank's place along the axes that cut is the number of
its box. Ranks with the same number have the same, whether their mesh has an axis for that or each
of them has a mesh of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from corro.errors import InvalidArgumentError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor lies on a mesh, and what this rank has of it. Immutable."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    shape: tuple[int, ...]  # Of the whole tensor.
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    box: int  # Its number among the boxes of the tensor; -1: this rank is not in the mesh.

    def wrap(self, local: Tensor) -> Tensor:
        """Returns the sharded tensor of which this rank has `local`; nothing is copied."""
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

        strides = torch.empty(self.shape, device="meta").stride()
        meta = TensorMeta(torch.Size(self.shape), strides, local.dtype)
        spec = DTensorSpec(self.mesh, self.placements, tensor_meta=meta)
        made: Tensor = DTensor(local, spec, requires_grad=False)
        return made


def is_sharded(value: object) -> bool:
    """Returns whether it is a DTensor; those of torch before 2.5 are none here."""
    module: Any = sys.modules.get("torch.distributed.tensor")
    kind = getattr(module, "DTensor", None)
    return kind is not None and isinstance(value, kind)


def local_of(tensor: Tensor) -> Tensor:
    """Returns what this rank has of a tensor, without a gradient."""
    if not is_sharded(tensor):
        return tensor.detach()
    local: Tensor = tensor._local_tensor  # type: ignore[attr-defined]
    return local.detach()


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Returns a sharded tensor with what this rank has of it on that device."""
    local, layout = local_of(tensor), layout_of(tensor)
    return tensor if layout is None or local.device == device else layout.wrap(local.to(device))


def layout_of(tensor: Tensor, name: str = "a tensor") -> Layout | None:
    """Returns how a sharded tensor lies; None for a plain one.

    Raises:
        InvalidArgumentError: it has sums that are not reduced, or is cut into parts that are no
            boxes; names the tensor.
    """
    if not is_sharded(tensor):
        return None
    sharded: Any = tensor
    layout = layout_on(sharded.device_mesh, sharded.placements, tuple(tensor.shape), name)
    local = tuple(local_of(tensor).shape)
    if layout.box >= 0 and local != layout.lengths:
        raise InvalidArgumentError(
            f"checkpoint: {name} has the part {list(local)} on this rank, where"
            f" {list(layout.lengths)} was expected: {_described(layout.placements, layout.shape)}"
        )
    return layout


def layout_on(
    mesh: DeviceMesh,
    placements: Sequence[Placement],
    shape: tuple[int, ...],
    name: str = "a tensor",
) -> Layout:
    """Returns how a tensor of that shape would lie there.

    A rank that is not in the mesh has an empty box.
    """
    axes = _axes_of_dims(placements, shape, mesh.shape)
    if axes is None:
        what = _described(placements, shape)
        raise InvalidArgumentError(f"checkpoint: {name} is {what}, which cannot be written")
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        nothing = tuple(0 for _ in shape)
        return Layout(mesh, tuple(placements), shape, nothing, nothing, -1)
    boxes = [
        _part(length, [(mesh.size(axis), coordinate[axis]) for axis in axes[dim]])
        for dim, length in enumerate(shape)
    ]
    box = 0
    for axis, one in enumerate(placements):
        if not one.is_replicate():
            box = box * mesh.size(axis) + coordinate[axis]
    return Layout(
        mesh,
        tuple(placements),
        shape,
        tuple(begin for begin, _ in boxes),
        tuple(end - begin for begin, end in boxes),
        box,
    )


def _axes_of_dims(
    placements: Sequence[Placement], shape: tuple[int, ...], mesh: tuple[int, ...]
) -> list[list[int]] | None:
    """Returns for each dim of a tensor the axes that cut it, in order; None: not into boxes.

    fully_shard() of a model with tensor parallelism cuts what another axis, to the right of its
    own, has cut before. torch writes that as a strided shard, which gives the same parts if all of
    them are equally long.
    """
    from torch.distributed.tensor.placement_types import Shard, _StridedShard

    axes: list[list[int]] = [[] for _ in shape]
    waiting: list[list[int]] = [[] for _ in shape]  # Strided shards, for those to their right.
    for axis, one in enumerate(placements):
        if isinstance(one, _StridedShard):
            waiting[one.dim].append(axis)
        elif isinstance(one, Shard):
            axes[one.dim] += [axis, *reversed(waiting[one.dim])]
            waiting[one.dim].clear()
        elif not one.is_replicate():
            return None
    for axis, one in enumerate(placements):
        if isinstance(one, _StridedShard):
            order = axes[one.dim]
            before = order[: order.index(axis)] if axis in order else []
            if axis not in order or one.split_factor != _product(mesh, _of(before, axis)):
                return None
            if shape[one.dim] % _product(mesh, order):
                return None
    return axes


def _of(axes: Sequence[int], beyond: int) -> list[int]:
    return [axis for axis in axes if axis > beyond]


def _product(mesh: tuple[int, ...], axes: Sequence[int]) -> int:
    product = 1
    for axis in axes:
        product *= mesh[axis]
    return product


def _part(length: int, cuts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Returns begin and end of what is left of a dim after cuts: into how many, and which.

    As torch.chunk() cuts: all parts but the last ones are equally long, and those may be empty.
    """
    begin, end = 0, length
    for count, which in cuts:
        size = -(-(end - begin) // count)
        begin, end = min(end, begin + which * size), min(end, begin + (which + 1) * size)
    return begin, end


def _described(placements: Sequence[Placement], shape: Sequence[int]) -> str:
    return f"a sharded tensor {list(shape)} with {', '.join(map(str, placements))}"
