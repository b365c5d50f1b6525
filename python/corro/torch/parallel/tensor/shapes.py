"""Rules of functions that treat each element by itself, or move elements without mixing them.

Whole tensors among the arguments are taken apart where they have the divided dim, and entered where
they do not: each rank uses them for its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from corro.torch.parallel.tensor.division import Division, enter, take
from corro.torch.parallel.tensor.split import Call, Rule, Split

_ELEMENTWISE = """
    add sub rsub mul div divide true_divide multiply subtract neg negative pow exp log sqrt rsqrt
    abs relu gelu silu sigmoid logsigmoid tanh leaky_relu elu selu celu hardtanh relu6 softplus
    softsign hardswish hardsigmoid mish where clamp clamp_min clamp_max masked_fill sin cos square
    reciprocal addcmul addcdiv lerp erf log1p expm1 sign maximum minimum eq ne lt le gt ge
    logical_not logical_and logical_or bitwise_not isnan isinf nan_to_num floor ceil round copy
    radd rmul rdiv rtruediv rpow truediv iadd isub imul idiv itruediv ipow invert and or rmod
    """.split()  # noqa: SIM905
_OF_FIRST = """
    to float half bfloat16 double bool long int clone contiguous detach type_as
    """.split()  # noqa: SIM905
_REDUCTIONS = ("mean", "sum", "amax", "amin", "var", "std", "prod", "all", "any")
_ALONG = ("softmax", "log_softmax", "softmin", "cumsum")


def aligned(call: Call, values: Sequence[Any]) -> list[Any] | None:
    """Returns the parts of values that are computed with element by element, as torch broadcasts.

    None: splits among them are divided differently.
    """
    splits = [each for each in values if isinstance(each, Split)]
    first = splits[0].division
    dim = first.dim - splits[0].dim()
    if any(_key(each) != _key(splits[0]) for each in splits):
        return None

    def part(value: Any) -> Any:
        if isinstance(value, Split):
            return value.local
        if not isinstance(value, Tensor) or value.dim() == 0:
            return value if not isinstance(value, Tensor) else _entered(value, call)
        if -dim <= value.dim() and value.shape[dim] == first.length:
            return take(value, Division(first.axis, value.dim() + dim, first.length, first.blocks))
        return _entered(value, call)

    return [part(each) for each in values]


def _key(split: Split) -> tuple[int, int, int]:
    division = split.division
    return division.dim - split.dim(), division.length, division.blocks


def _entered(tensor: Tensor, call: Call) -> Tensor:
    return enter(tensor, call.axis) if tensor.requires_grad else tensor


def _elementwise(call: Call) -> Any:
    values = [*call.args, *call.keywords.values()]
    if call.is_in_place and not isinstance(call.args[0], Split):
        return NotImplemented
    if call.name == "where" and len(values) < 3:
        return NotImplemented  # It returns places, as many as there are values.
    parts = aligned(call, values)
    if parts is None:
        return NotImplemented
    args, keywords = parts[: len(call.args)], parts[len(call.args) :]
    local = call.function(*args, **dict(zip(call.keywords, keywords, strict=True)))
    if call.is_in_place:
        return call.args[0]
    widest = max((each for each in values if isinstance(each, Split)), key=lambda each: each.dim())
    division = widest.division
    return call.split(local, division.dim - widest.dim(), division.length, division.blocks)


def _of_first(call: Call) -> Any:
    split = call.args[0]
    if not isinstance(split, Split):
        return NotImplemented
    args = tree_map(_local, call.args)
    return call.like(call.function(*args, **call.keywords), split)


def _local(value: Any) -> Any:
    return value.local if isinstance(value, Split) else value


# --- Dims -----------------------------------------------------------------------------------------


def _reduction(call: Call) -> Any:
    """mean(x, dim, keepdim) and the like, over dims that are whole."""
    names = ("unbiased", "keepdim") if call.name in ("var", "std") else ("keepdim", "dtype")
    split, dims, *rest = call.taken("input", "dim", *names)
    keeps = rest[names.index("keepdim")]
    if not isinstance(split, Split) or dims is None or isinstance(dims, bool):
        return NotImplemented
    gone = {each % split.dim() for each in (dims if isinstance(dims, (tuple, list)) else [dims])}
    division = split.division
    if division.dim in gone:
        return NotImplemented
    local = call.function(*map(_local, call.args), **call.keywords)
    dim = division.dim - (0 if keeps else sum(each < division.dim for each in gone))
    return call.split(local, dim, division.length, division.blocks)


def _along(call: Call) -> Any:
    """softmax and the like, along a dim that is whole."""
    split, dim = call.taken("input", "dim")
    if not isinstance(split, Split) or not isinstance(dim, int):
        return NotImplemented
    if dim % split.dim() == split.division.dim:
        return NotImplemented
    return call.like(call.function(*map(_local, call.args), **call.keywords), split)


def _norm(call: Call) -> Any:
    """layer_norm and rms_norm over dims behind the divided one."""
    split, shape, *tensors = call.taken("input", "normalized_shape", "weight", "bias")
    if not isinstance(split, Split) or any(isinstance(each, Split) for each in tensors):
        return NotImplemented
    if split.division.dim >= split.dim() - len(shape):
        return NotImplemented
    tensors = [each for each in tensors if isinstance(each, Tensor)]
    parts = {id(split): split.local, **_entered_together(tensors, call)}
    args = [parts.get(id(each), each) for each in call.args]
    keywords = {name: parts.get(id(each), each) for name, each in call.keywords.items()}
    return call.like(call.function(*args, **keywords), split)


def _entered_together(tensors: list[Tensor], call: Call) -> dict[int, Tensor]:
    """Returns them entered, by their ids; gradients of a weight and a bias are summed at once."""
    if len(tensors) < 2 or len({(each.dtype, each.requires_grad) for each in tensors}) > 1:
        return {id(each): _entered(each, call) for each in tensors}
    together = _entered(torch.stack(tensors), call).unbind()
    return dict(zip(map(id, tensors), together, strict=True))


def _transpose(call: Call) -> Any:
    split, first, second = call.taken("input", "dim0", "dim1")
    if first is None or second is None:  # t() and mT.
        first, second = -1, -2
    dims = list(range(split.dim()))
    dims[first], dims[second] = dims[second], dims[first]
    return _permuted(call, split, dims)


def _permute(call: Call) -> Any:
    split, *dims = call.args
    dims = list(dims[0] if dims and isinstance(dims[0], (tuple, list)) else dims)
    if call.keywords or not dims:
        return NotImplemented
    return _permuted(call, split, [each % split.dim() for each in dims])


def _permuted(call: Call, split: Split, dims: list[int]) -> Split:
    division = split.division
    local = split.local.permute(dims)
    return call.split(local, dims.index(division.dim), division.length, division.blocks)


def _unsqueeze(call: Call) -> Any:
    split, dim = call.taken("input", "dim")
    dim, division = dim % (split.dim() + 1), split.division
    local = split.local.unsqueeze(dim)
    return call.split(local, division.dim + (dim <= division.dim), division.length, division.blocks)


def _squeeze(call: Call) -> Any:
    split, dim = call.taken("input", "dim")
    if not isinstance(dim, int):
        return NotImplemented
    if split.shape[dim] != 1:
        return split
    division = split.division
    before = dim % split.dim() < division.dim
    return call.split(
        split.local.squeeze(dim), division.dim - before, division.length, division.blocks
    )


def _expand(call: Call) -> Any:
    split, *sizes = call.args
    sizes = _sizes(sizes)
    division = split.division
    dim = division.dim - split.dim()
    if call.keywords or sizes[dim] not in (-1, division.length):
        return NotImplemented
    sizes[dim] = -1
    return call.split(split.local.expand(sizes), dim, division.length, division.blocks)


def _repeat_interleave(call: Call) -> Any:
    split, times, dim = call.taken("input", "repeats", "dim")
    division = getattr(split, "division", None)
    if not isinstance(times, int) or not isinstance(dim, int) or division is None:
        return NotImplemented
    local = split.local.repeat_interleave(times, dim)
    if dim % split.dim() != division.dim:
        return call.like(local, split)
    if not division.is_even:
        return NotImplemented
    return call.split(local, division.dim, division.length * times, division.blocks)


# --- Shapes ---------------------------------------------------------------------------------------


def _view(call: Call) -> Any:
    split, *sizes = call.args
    if call.keywords or not sizes or isinstance(sizes[0], torch.dtype):
        return NotImplemented
    return _reshaped(call, split, _sizes(sizes))


def _view_as(call: Call) -> Any:
    split, other = call.taken("input", "other")
    return _reshaped(call, split, list(other.shape)) if isinstance(split, Split) else NotImplemented


def _flatten(call: Call) -> Any:
    split, start, end = call.taken("input", "start_dim", "end_dim")
    dims, shape = split.dim(), list(split.shape)
    start, end = (start or 0) % dims, (-1 if end is None else end) % dims
    return _reshaped(call, split, [*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :]])


def _unflatten(call: Call) -> Any:
    split, dim, sizes = call.taken("input", "dim", "sizes")
    if not isinstance(dim, int) or not isinstance(sizes, (tuple, list)):
        return NotImplemented
    shape, dim = list(split.shape), dim % split.dim()
    sizes = list(sizes)
    if -1 in sizes:
        sizes[sizes.index(-1)] = shape[dim] // -prod(sizes)
    return _reshaped(call, split, [*shape[:dim], *sizes, *shape[dim + 1 :]])


def _sizes(sizes: Sequence[Any]) -> list[int]:
    return list(sizes[0] if isinstance(sizes[0], (tuple, list)) else sizes)


def _reshaped(call: Call, split: Split, shape: list[int]) -> Any:
    """The divided dim is `blocks` times a run. It stays one, is cut behind its first factor, or is
    the first factor of a longer one."""
    division = split.division
    if -1 in shape:
        others = -prod(shape)
        shape[shape.index(-1)] = split.numel() // others if others else 0
    before = prod(split.shape[: division.dim]) * division.blocks  # Of the runs of all ranks.
    run = division.length // division.blocks
    dim, passed = 0, 1
    while dim < len(shape) and passed * shape[dim] <= before:
        passed *= shape[dim]
        dim += 1
    if dim == len(shape) or before % passed or shape[dim] % (before // passed):
        return _without(call, split, shape)
    blocks = before // passed
    made = Division(division.axis, dim, shape[dim], blocks)
    same = shape[dim] // blocks == run
    fits = run % (shape[dim] // blocks) == 0 or (shape[dim] // blocks) % run == 0
    if not (fits and (same or division.is_even)) or not (made.is_even or (same and blocks == 1)):
        return _without(call, split, shape)
    local = [*shape]
    local[dim] = made.own
    return call.split(split.local.reshape(local), dim, shape[dim], blocks)


def _without(call: Call, split: Split, shape: list[int]) -> Any:
    """A view that would do, if the parameter were divided block by block."""
    before = prod(split.shape[: split.division.dim])
    found = [dim for dim in range(len(shape)) if prod(shape[:dim]) == before and shape[dim] > 1]
    if found:
        call.pieces = shape[found[0]]
    return NotImplemented


# --- Parts ----------------------------------------------------------------------------------------


def _getitem(call: Call) -> Any:
    split, index = call.args
    if not isinstance(split, Split):
        return NotImplemented
    index = index if isinstance(index, tuple) else (index,)
    if not all(each is None or each is Ellipsis or _is_plain(each) for each in index):
        return NotImplemented
    used = sum(each is not None and each is not Ellipsis for each in index)
    if Ellipsis not in index:
        index = (*index, Ellipsis)
    place = index.index(Ellipsis)
    index = (*index[:place], *[slice(None)] * (split.dim() - used), *index[place + 1 :])
    dim, made = 0, 0
    for each in index:
        if each is None:
            made += 1
            continue
        if dim == split.division.dim:
            if isinstance(each, slice) and each.indices(split.division.length) == (
                *(0, split.division.length),
                1,
            ):
                division = split.division
                return call.split(split.local[index], made, division.length, division.blocks)
            if isinstance(each, int):
                call.pieces = split.division.length
            return NotImplemented
        dim, made = dim + 1, made + isinstance(each, slice)
    return NotImplemented


def _is_plain(index: Any) -> bool:
    return isinstance(index, slice) or (isinstance(index, int) and not isinstance(index, bool))


def _select(call: Call) -> Any:
    split, dim, place = call.taken("input", "dim", "index")
    index = [slice(None)] * split.dim()
    index[dim] = place
    return split[tuple(index)]


def _narrow(call: Call) -> Any:
    split, dim, start, length = call.taken("input", "dim", "start", "length")
    if isinstance(start, Tensor):
        return NotImplemented
    index = [slice(None)] * split.dim()
    index[dim] = slice(start, start + length)
    return split[tuple(index)]


def _pieces(call: Call) -> Any:
    """split, chunk and unbind; along the divided dim where each piece is one of its blocks."""
    split, how, dim = call.taken("input", "how", "dim")
    if not isinstance(split, Split):
        return NotImplemented
    if call.name in ("unbind", "iter"):
        dim = 0 if call.name == "iter" else (how if dim is None else dim)
    else:
        known = ("split_size_or_sections", "split_size", "chunks")
        how = next((call.keywords[each] for each in known if each in call.keywords), how)
    dim, division = (dim or 0) % split.dim(), split.division
    if dim == division.dim:
        return _blocks(call, split, how)
    args = [split.local, *call.args[1:]]
    made = tuple(call.function(*args, **call.keywords))
    gone = made[0].dim() < split.dim() and dim < division.dim
    parts = tuple(
        call.split(each, division.dim - gone, division.length, division.blocks) for each in made
    )
    return iter(parts) if call.name == "iter" else parts


def _blocks(call: Call, split: Split, how: Any) -> Any:
    division = split.division
    if call.name in ("unbind", "iter"):
        call.pieces = division.length
        return NotImplemented
    if call.name == "chunk":
        pieces = how
    elif isinstance(how, int):
        pieces = -(-division.length // how)
    else:
        pieces = len(how) if len(set(how)) == 1 else 0
    if pieces != division.blocks or pieces < 2:
        call.pieces = pieces
        return NotImplemented
    made = split.local.chunk(pieces, division.dim)
    return tuple(call.split(each, division.dim, division.length // pieces) for each in made)


def _glu(call: Call) -> Any:
    split, dim = call.taken("input", "dim")
    dim, division = (-1 if dim is None else dim) % split.dim(), split.division
    if dim != division.dim:
        return call.like(torch.nn.functional.glu(split.local, dim), split)
    if division.blocks != 2:
        call.pieces = 2
        return NotImplemented
    return call.split(torch.nn.functional.glu(split.local, dim), dim, division.length // 2)


def _cat(call: Call) -> Any:
    tensors, dim = call.taken("tensors", "dim")
    dim = dim or 0
    if not isinstance(tensors, (tuple, list)):
        return NotImplemented
    if call.name != "stack":  # It ignores tensors like torch.tensor([]).
        tensors = [each for each in tensors if tuple(each.shape) != (0,)]
    if len({each.dim() for each in tensors}) > 1:
        return NotImplemented
    division, dims = call.first.division, call.first.dim()
    is_new = call.name == "stack"
    dim %= dims + is_new
    if not is_new and dim == division.dim:
        return NotImplemented
    parts = aligned(call, tensors)
    if parts is None:
        return NotImplemented
    made = division.dim + (is_new and dim <= division.dim)
    return call.split(call.function(parts, dim=dim), made, division.length, division.blocks)


_MATRIX_TRANSPOSED = Tensor.mT.__get__  # type: ignore[attr-defined]
RULES: dict[Any, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_OF_FIRST, _of_first),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_ALONG, _along),
    **dict.fromkeys(("layer_norm", "rms_norm"), _norm),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims", "t", _MATRIX_TRANSPOSED), _transpose),
    "permute": _permute,
    **dict.fromkeys(("view", "reshape"), _view),
    **dict.fromkeys(("view_as", "reshape_as"), _view_as),
    "flatten": _flatten,
    "unflatten": _unflatten,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "expand": _expand,
    "repeat_interleave": _repeat_interleave,
    "getitem": _getitem,
    "select": _select,
    "narrow": _narrow,
    **dict.fromkeys(("split", "chunk", "unbind", "iter"), _pieces),
    "glu": _glu,
    **dict.fromkeys(("cat", "concat", "concatenate", "stack"), _cat),
}
