"""Tensors in slots of a plan: a header that says dtype and shape, then the elements.

A slot has room for the largest micro-batch; the last one of an epoch may be smaller, and sequences
shorter: no more than that is sent. A header has nine int64: how many bytes follow, the dtype's
number, the number of dims (5 at most, -1: there is no tensor), the dims, and the tokens of the
whole, if these are a rank's part of them (else 0).
"""

from __future__ import annotations

import math
import struct

import torch
from torch import Tensor

from corro.errors import InvalidArgumentError

_HEADER = struct.Struct("<9q")
HEADER = _HEADER.size
MOST_DIMS = 5
DTYPES = (
    *(torch.float32, torch.bfloat16, torch.float16, torch.float64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)
_NOTHING = -1


def write(slot: memoryview, tensor: Tensor | None, what: str, tokens: int = 0) -> int:
    """Copies a tensor into a slot, from any device; None says that there is none.

    Args:
        tokens: of the whole, if the tensor is a rank's part of them.

    Returns:
        how many bytes of the slot it has filled.

    Raises:
        InvalidArgumentError: it is of another kind than stages hand on, or larger than the slot;
            begins with `what`.
    """
    if tensor is None:
        _HEADER.pack_into(slot, 0, 0, 0, _NOTHING, *[0] * MOST_DIMS, 0)
        return HEADER
    if tensor.dtype not in DTYPES or tensor.dim() > MOST_DIMS:
        raise InvalidArgumentError(
            f"{what}: hands on {tensor.dim()} dims of {tensor.dtype}, which stages cannot"
        )
    size = tensor.numel() * tensor.element_size()
    if HEADER + size > len(slot):
        raise InvalidArgumentError(
            f"{what}: hands on {size} bytes, and the plan has room for {len(slot) - HEADER}: "
            "give parallelize() a sample_batch as large as the largest batch"
        )
    shape = [*tensor.shape, *[0] * (MOST_DIMS - tensor.dim())]
    _HEADER.pack_into(slot, 0, size, DTYPES.index(tensor.dtype), tensor.dim(), *shape, tokens)
    if size:
        _elements(slot, tensor.dtype, tensor.shape).copy_(tensor)
    return HEADER + size


def read(slot: memoryview) -> Tensor | None:
    """Returns the tensor of a slot, on the CPU; it is valid as long as the slot is."""
    _, dtype, dims, *shape, _ = _HEADER.unpack_from(slot)
    if dims == _NOTHING:
        return None
    if 0 in shape[:dims]:
        return torch.empty(shape[:dims], dtype=DTYPES[dtype])
    return _elements(slot, DTYPES[dtype], shape[:dims])


def tokens_of(slot: memoryview) -> int:
    """Returns how many tokens the whole has of which a slot's tensor is a part; 0: it is whole."""
    tokens: int = _HEADER.unpack_from(slot)[-1]
    return tokens


def _elements(slot: memoryview, dtype: torch.dtype, shape: list[int] | torch.Size) -> Tensor:
    count = math.prod(shape)
    return torch.frombuffer(slot, dtype=dtype, count=count, offset=HEADER).view(shape)
