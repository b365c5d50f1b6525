"""torch's dtypes and reductions, as the engine has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as c10d

from corro import _native, _rules
from corro.errors import UnimplementedError
from corro.torch.verbs import DTYPES

if TYPE_CHECKING:
    from torch import Tensor

_SUM = c10d.ReduceOp.SUM
_REDUCE_OPS = {
    c10d.ReduceOp.SUM: _native.SUM,
    c10d.ReduceOp.AVG: _native.AVERAGE,
    c10d.ReduceOp.MIN: _native.MIN,
    c10d.ReduceOp.MAX: _native.MAX,
    c10d.ReduceOp.PRODUCT: _native.PRODUCT,
}
# The engine has none of these: allreduce gathers and folds.
BITWISE: dict[Any, Callable[[Tensor, Tensor], Tensor]] = {
    c10d.ReduceOp.BAND: torch.bitwise_and,
    c10d.ReduceOp.BOR: torch.bitwise_or,
    c10d.ReduceOp.BXOR: torch.bitwise_xor,
}
# A complex number's real and imaginary part.
_PARTS = {
    torch.complex32: _native.F16,
    torch.complex64: _native.F32,
    torch.complex128: _native.F64,
}


def movable(tensor: Tensor) -> tuple[int, int]:
    """Returns a dtype to move the tensor with, and how many of it make an element."""
    return _rules.movable(DTYPES.get(tensor.dtype), tensor.element_size())


def reducible(tensor: Tensor, reduce_op: int, verb: str) -> tuple[int, int]:
    """Returns a dtype to reduce the tensor with, and how many of it make an element."""
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None and reduce_op in (_native.SUM, _native.AVERAGE):
        parts = _PARTS.get(tensor.dtype)
        if parts is not None:
            return parts, 2
    return _rules.reducible(dtype, verb, tensor.dtype), 1


def plain_reduction(op: Any) -> int | None:
    """Returns the engine's reduction for torch's; None if there is more to it.

    To ask for the sum first takes a tenth of the time of a look into the table.
    """
    return _native.SUM if op == _SUM else _REDUCE_OPS.get(op.op)


def reduction(op: Any) -> tuple[int, float]:
    """Returns the engine's reduction for torch's, and the factor before it."""
    ours = _REDUCE_OPS.get(op.op)
    if ours is not None:
        return ours, 1.0
    if op == c10d.ReduceOp.PREMUL_SUM:
        if not hasattr(op, "factor"):
            raise needs_newer("ReduceOp.PREMUL_SUM")
        return _native.SUM, float(op.factor)
    raise UnimplementedError(f"corro: reduce op {op} is not supported here")


def needs_newer(what: str) -> UnimplementedError:
    """Returns the error for what torch has since 2.15."""
    return UnimplementedError(
        f"corro: {what} needs torch 2.15 or later; this is {torch.__version__}"
    )
