"""What corro.checkpoint writes of a TorchState: tensors as they are, and an optimizer by names.

`corro.torch.checkpoint.Checkpointer` is that of corro.checkpoint.

A state_dict() of an optimizer calls parameters by numbers. In a checkpoint they have the names that
the model gives them, so it does not matter in which order they were given to the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import nn

from corro._contents import Contents, Piece
from corro._context import exchange
from corro._plain import from_text, inside
from corro.elastic._state import differences, listed
from corro.errors import InvalidArgumentError
from corro.torch.optimizer_state import Received
from corro.torch.sharded import Layout, is_sharded, layout_of, layout_on, local_of
from corro.torch.verbs import DTYPES

if TYPE_CHECKING:
    from torch import Tensor

    from corro import _checkpoint
    from corro._context import Group

DTYPES_BY_NUMBER = {number: dtype for dtype, number in DTYPES.items()}


def __getattr__(name: str) -> Any:
    if name == "Checkpointer":  # Not before it is asked for: not every wheel has checkpoints.
        return import_module("corro.checkpoint").Checkpointer
    raise AttributeError(f"module 'corro.torch.checkpoint' has no attribute {name!r}")


class TorchContents(Contents):
    """A tree with tensors, dense ones of any strides and on any device; sharded ones, too.

    Two names of the same memory, such as tied weights, are written once. Of a sharded tensor each
    rank writes the box that it has, or a part of that if others have the same. What is not sharded
    is on all ranks, and divided among them.
    """

    def __init__(self, tree: Any) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._names: dict[object, str] = {}
        super().__init__(tree)

    def _take(self, path: str, value: Any) -> dict[str, Any] | None:
        if not isinstance(value, torch.Tensor):
            return None
        _check(path, value)
        tensor = value.detach()
        key = _identity(value)
        name = self._names.get(key) if tensor.numel() else None
        if name is None:
            name = path
            while name in self._tensors:  # Dots of one name may be levels of another.
                name += "'"
            self._names[key] = name
            self._tensors[name] = tensor
        return {"$tensor": name}

    def pieces(self, group: Group) -> list[Piece]:
        plain: list[_Local] = []
        sharded: dict[object, list[_Local]] = {}  # By the mesh, and how they lie on it.
        for name, tensor in self._tensors.items():
            layout = layout_of(tensor, name)
            if layout is None or not tensor.numel():  # Of nothing everybody has all.
                plain.append(_Local(name, tensor, tensor if layout is None else _empty(tensor)))
            else:
                local = _Local(name, tensor, local_of(tensor), layout)
                sharded.setdefault((layout.mesh, layout.placements), []).append(local)
        pieces = _share(plain, group.rank(), group.size())
        if sharded:
            pieces += _shares(list(sharded.values()), group)
        return pieces

    def copy(self, pieces: Sequence[Piece], memory: memoryview, offsets: Sequence[int]) -> None:
        copy_pieces(pieces, torch.frombuffer(memory, dtype=torch.uint8), offsets)


def _identity(value: Tensor) -> object:
    """Returns what two names of the same tensor have alike: on all ranks, if it is sharded."""
    if is_sharded(value):
        return id(value)  # A rank may have nothing of it, which has no address.
    return value.data_ptr(), value.device, value.dtype, value.shape, value.stride()


@dataclass(frozen=True, slots=True)
class _Local:
    """What this rank has of a tensor."""

    name: str
    tensor: Tensor
    value: Tensor
    layout: Layout | None = None  # None: the whole.


def _empty(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def _shares(groups: Sequence[Sequence[_Local]], group: Group) -> list[Piece]:
    """Returns this rank's pieces of sharded tensors, in groups that lie alike; all ranks call it.

    Ranks tell each other which box of each group they have: those that have the same divide it.
    """
    layouts = [members[0].layout for members in groups]
    mine = [-1 if layout is None else layout.box for layout in layouts]
    rows = exchange(group, mine)
    pieces: list[Piece] = []
    for number, members in enumerate(groups):
        if mine[number] >= 0:
            sharers = [r for r, row in enumerate(rows) if row[number] == mine[number]]
            pieces += _share(members, sharers.index(group.rank()), len(sharers))
    return pieces


def _share(locals_: Sequence[_Local], rank: int, size: int) -> list[Piece]:
    """Returns the pieces of one of so many ranks that have the same."""
    from corro import _checkpoint

    forms = [(DTYPES[one.value.dtype], list(one.value.shape)) for one in locals_]
    pieces = []
    for index, begin, shape in _checkpoint.share(rank, size, forms):
        local = locals_[index]
        layout, dtype = local.layout, DTYPES[local.tensor.dtype]
        source = local.value[tuple(slice(b, b + n) for b, n in zip(begin, shape, strict=True))]
        if layout is None:
            pieces.append(Piece(local.name, dtype, list(local.tensor.shape), begin, shape, source))
        elif source.numel():
            offsets = [a + b for a, b in zip(layout.offsets, begin, strict=True)]
            pieces.append(Piece(local.name, dtype, layout.shape, offsets, shape, source))
    return pieces


def copy_pieces(pieces: Sequence[Piece], memory: Tensor, offsets: Sequence[int]) -> None:
    """Copies the pieces, row-major, to these offsets of a tensor of bytes."""
    for piece, offset in zip(pieces, offsets, strict=True):
        box: Tensor = piece.source
        if box.numel():
            size = box.numel() * box.element_size()
            memory[offset : offset + size].view(box.dtype).view(box.shape).copy_(box)


class Layouts:
    """Where tensors of a checkpoint go: how those of the same path lie here. Immutable."""

    def __init__(
        self,
        tree: Mapping[str, Any],
        optimizer: torch.optim.Optimizer | None,
        model: nn.Module | None,
    ) -> None:
        """`tree`: what is here."""
        self._known: dict[str, Layout] = {}
        self._plain: set[str] = set()
        self._params: dict[str, Layout] = {}
        self._note(tree, "")
        for group, names in _named_groups(optimizer, model):
            for param, name in zip(group["params"], names, strict=True):
                if (layout := layout_of(param, name)) is not None:
                    self._params[f"optimizer.state.{name}"] = layout

    def of(self, path: str, shape: tuple[int, ...]) -> Layout | None:
        """Returns how such a tensor is to lie here; None: each rank has the whole."""
        known = self._known.get(path)
        if known is not None:
            return known if known.shape == shape else None
        return None if path in self._plain else self._of_state(path, shape)

    def _of_state(self, path: str, shape: tuple[int, ...]) -> Layout | None:
        """The optimizer has no state yet. It would lie as torch makes it from the parameter."""
        name, _, key = path.rpartition(".")
        param = self._params.get(name)
        if param is None or key == "step" or (not shape and param.shape):
            return None
        if shape == param.shape:
            return param
        from torch.distributed.tensor import Replicate

        return layout_on(param.mesh, [Replicate()] * param.mesh.ndim, shape, path)

    def _note(self, value: Any, path: str) -> None:
        if isinstance(value, torch.Tensor):
            layout = layout_of(value, path)
            if layout is None:
                self._plain.add(path)
            else:
                self._known[path] = layout
        elif isinstance(value, dict):
            for key, item in value.items():
                self._note(item, inside(path, key))
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                self._note(item, inside(path, number))


class Wanted(NamedTuple):
    """A box of a tensor, and the memory that it belongs into."""

    tensor: int  # Its number in the source.
    offsets: Sequence[int]
    lengths: Sequence[int]
    local: Tensor


class Source(Protocol):
    """Where a tree comes from."""

    @property
    def values(self) -> str:
        """The tree, as to_text() has written it."""

    @property
    def tensors(self) -> list[tuple[str, int, list[int]]]:
        """Name, dtype and shape of each tensor."""

    def fill(self, wanted: Sequence[Wanted], /) -> None:
        """Fills the boxes. Blocks."""


class OnDisk:
    """A checkpoint as a source."""

    def __init__(self, opened: _checkpoint.Opened) -> None:
        self._opened = opened
        self.values = opened.values
        self.tensors = opened.tensors

    def fill(self, wanted: Sequence[Wanted]) -> None:
        self._opened.read(
            [(one.tensor, one.offsets, one.lengths, one.local.data_ptr()) for one in wanted]
        )


def read_tree(source: Source, layouts: Layouts) -> Any:
    """Returns the source's tree: of each tensor what this rank has to have. Blocks."""
    tensors = source.tensors
    if unknown := [name for name, dtype, _ in tensors if dtype not in DTYPES_BY_NUMBER]:
        raise InvalidArgumentError(f"torch has not the dtype of {listed(unknown)}")
    numbers = {name: index for index, (name, _, _) in enumerate(tensors)}
    made: dict[object, Tensor] = {}
    wanted: list[Wanted] = []

    def give(path: str, mark: Mapping[str, Any]) -> Tensor:
        index = numbers[mark["$tensor"]]
        _, dtype, shape = tensors[index]
        layout = layouts.of(path, tuple(shape))
        key = index, None if layout is None else (layout.mesh, layout.placements)
        if key not in made:
            offsets = [0] * len(shape) if layout is None else layout.offsets
            lengths = shape if layout is None else layout.lengths
            local = torch.empty(tuple(lengths), dtype=DTYPES_BY_NUMBER[dtype], device="cpu")
            wanted.append(Wanted(index, offsets, lengths, local))
            made[key] = local if layout is None else layout.wrap(local)
        return made[key]

    tree = from_text(source.values, give)
    source.fill(wanted)
    return tree


def named_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module | None) -> dict[str, Any]:
    """Returns the optimizer's state and groups, with names for parameters."""
    saved, names = optimizer.state_dict(), _names(optimizer, model)
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    name_of = dict(zip(numbers, (name for group in names for name in group), strict=True))
    return {
        "kind": type(optimizer).__name__,  # DistributedOptimizer keeps the name.
        "state": {name_of.get(key, key): value for key, value in saved["state"].items()},
        "groups": [
            {**group, "params": own}
            for group, own in zip(saved["param_groups"], names, strict=True)
        ],
    }


@dataclass(frozen=True, slots=True)
class _Loaded:
    """An optimizer's state out of a checkpoint."""

    object: Any
    on_device: set[int]


def loaded_optimizer(
    tree: dict[str, Any], optimizer: torch.optim.Optimizer, model: nn.Module | None
) -> Received:
    """Returns what named_optimizer() has returned elsewhere, with numbers for names again."""
    names = _names(optimizer, model)
    flat = [name for group in names for name in group]
    number_of = {name: number for number, name in enumerate(flat)}
    groups = [  # Another torch may know other options.
        {**ours, **theirs, "params": [number_of[name] for name in own]}
        for ours, theirs, own in zip(optimizer.param_groups, tree["groups"], names, strict=True)
    ]
    state = {number_of.get(key, key): value for key, value in tree["state"].items()}
    return _Loaded(
        {
            "state_dict": {"state": state, "param_groups": groups},
            "defaults": optimizer.defaults,
        },
        _on_device(state, groups),
    )


def _on_device(state: Mapping[Any, Any], groups: Sequence[Mapping[str, Any]]) -> set[int]:
    """Returns the ids of tensors that belong to the parameter's device: all, as in torch, but for
    steps that the host counts.
    """
    counts_on_device = {
        number
        for group in groups
        if group.get("capturable") or group.get("fused")
        for number in group["params"]
    }
    return {
        id(value)
        for number, values in state.items()
        if isinstance(values, dict)
        for key, value in values.items()
        if isinstance(value, torch.Tensor) and (key != "step" or number in counts_on_device)
    }


def _named_groups(
    optimizer: torch.optim.Optimizer | None, model: nn.Module | None
) -> list[tuple[dict[str, Any], list[str]]]:
    if optimizer is None:
        return []
    return list(zip(optimizer.param_groups, _names(optimizer, model), strict=True))


def _names(optimizer: torch.optim.Optimizer, model: nn.Module | None) -> list[list[str]]:
    """Returns the names of each group's parameters; one that the model has not is a number."""
    known: dict[int, str] = {}
    for name, param in model.named_parameters() if model is not None else ():
        known[id(param)] = name
    params = [param for group in optimizer.param_groups for param in group["params"]]
    numbers = {id(param): f"#{number}" for number, param in enumerate(params)}
    return [
        [known.get(id(param)) or numbers[id(param)] for param in group["params"]]
        for group in optimizer.param_groups
    ]


def misfit_of_optimizers(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Returns in what two named_optimizer() differ: their class, or the parameters of groups."""
    if theirs["kind"] != ours["kind"]:
        return f"its optimizer is {theirs['kind']}, and {ours['kind']} is here"
    if len(theirs["groups"]) != len(ours["groups"]):
        counts = f"{len(theirs['groups'])} parameter groups, and {len(ours['groups'])} are here"
        return f"its optimizer has {counts}"
    texts = [
        differences(f"parameters of group {number}", their["params"], our["params"])
        for number, (their, our) in enumerate(zip(theirs["groups"], ours["groups"], strict=True))
    ]
    return "; ".join(text for text in texts if text)


def misfit_of_tensors(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Returns in which tensors a checkpoint differs from the model; "" if in none."""
    texts = [differences("tensors", theirs, ours)]
    pairs = {name: (theirs[name], ours[name]) for name in ours if name in theirs}
    texts += [
        f"{name} is {_form(their)}, and {_form(our)} here"
        for name, (their, our) in pairs.items()
        if _form(their) != _form(our)
    ]
    return "; ".join(text for text in texts if text)


def _form(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return "no tensor"
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def _check(path: str, tensor: Tensor) -> None:
    is_plain = type(local_of(tensor)) in (torch.Tensor, nn.Parameter)
    is_plain = is_plain and tensor.layout == torch.strided
    if not is_plain or tensor.is_quantized or tensor.is_meta:
        what = "quantized" if tensor.is_quantized else f"a {type(tensor).__name__}"
        raise InvalidArgumentError(
            f"checkpoint: {path} is {what} of layout {tensor.layout}; dense tensors can be written"
        )
    if tensor.dtype not in DTYPES:
        raise InvalidArgumentError(
            f"checkpoint: {path} has the dtype {tensor.dtype}, which cannot be written"
        )
