"""The order in which the elements of a tensor lie in memory.

A weight may be channels_last on one rank and row-major on another. Verbs copy a tensor that is not
row-major, so what travels has one order. Gradients lie in their bucket in the order that the ranks
agree on (agreement.py); a rank whose parameter has another one copies (slot.py).

A fused optimizer walks through the memory of a parameter, its gradient and its state at once. So
each of them has the parameter's own strides, on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

Order = tuple[int, ...]  # Dims of more than one element; the one with the largest stride first.


def memory_order(tensor: Tensor) -> Order:
    """Returns the order of a dense tensor's dims; row-major for one with gaps or overlaps."""
    if tensor.numel() == 0:
        return ()
    dims, strides = [dim for dim, size in enumerate(tensor.shape) if size > 1], tensor.stride()
    order = tuple(sorted(dims, key=lambda dim: -strides[dim]))
    wanted = strides_of(tensor.shape, order)
    dense = all(strides[dim] == wanted[dim] for dim in dims)
    return order if dense else tuple(dims)


def strides_of(shape: Sequence[int], order: Order) -> list[int]:
    """Returns the strides of a dense tensor of this shape and order."""
    strides, step = [1] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= shape[dim]
    return strides


def dense_strides(tensor: Tensor) -> list[int]:
    """Returns the strides that torch gives the tensor's gradient: its own, if it is dense."""
    wanted, own = strides_of(tensor.shape, memory_order(tensor)), list(tensor.stride())
    dense = tensor.numel() == 0 or all(
        n <= 1 or a == b for n, a, b in zip(tensor.shape, own, wanted, strict=True)
    )
    return own if dense else wanted


def zeros_like_gradient(param: Tensor) -> Tensor:
    """Returns zeros in memory of their own, with the strides of the parameter's gradient."""
    made = torch.empty_strided(
        param.shape, dense_strides(param), dtype=param.dtype, device=param.device
    )
    return made.zero_()
