"""The reductions, under Horovod's names and with its numbers: scripts pass either."""

from __future__ import annotations

import enum

import corro


class ReduceOp(enum.IntEnum):
    """What becomes of the ranks' contributions."""

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Adasum = ReduceOp.ADASUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT

_CORROS = {one: corro.ReduceOp[one.name] for one in ReduceOp}


def known(op: object) -> ReduceOp | corro.ReduceOp:
    """Returns Horovod's reduction for itself or its number, and corro's for itself.

    Raises:
        NotImplementedError: there is none of this number.
    """
    if isinstance(op, ReduceOp | corro.ReduceOp):
        return op
    try:
        return ReduceOp(op)  # type: ignore[arg-type]  # What is no number, is no reduction either.
    except ValueError:
        raise NotImplementedError(
            f"op={op!r}: there are hvd.Average, Sum, Adasum, Min, Max and Product, or 0 to 5"
        ) from None


def corros(op: ReduceOp | corro.ReduceOp) -> corro.ReduceOp:
    """Returns corro's reduction of the same name."""
    return op if isinstance(op, corro.ReduceOp) else _CORROS[op]
