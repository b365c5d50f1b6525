"""The reductions, under Horovod's names and with its numbers: scripts pass either."""

from __future__ import annotations

import enum
import warnings

import corro


class ReduceOp(enum.IntEnum):
    """What becomes of the ranks' contributions. `corros` is corro's reduction of the same name."""

    corros: corro.ReduceOp

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

for _one in ReduceOp:  # An attribute: to look an enum's member up in a dict takes Python code.
    _one.corros = corro.ReduceOp[_one.name]

_KNOWN = (ReduceOp, corro.ReduceOp)


def known(op: object) -> ReduceOp | corro.ReduceOp:
    """Returns Horovod's reduction for itself or its number, and corro's for itself.

    Raises:
        NotImplementedError: there is none of this number.
    """
    if isinstance(op, _KNOWN):
        return op
    try:
        return ReduceOp(op)  # type: ignore[arg-type]  # What is no number, is no reduction either.
    except ValueError:
        raise NotImplementedError(
            f"op={op!r}: there are hvd.Average, Sum, Adasum, Min, Max and Product, or 0 to 5"
        ) from None


def corros(op: ReduceOp | corro.ReduceOp) -> corro.ReduceOp:
    """Returns corro's reduction of the same name."""
    return op.corros if isinstance(op, ReduceOp) else op


def without_average(op: ReduceOp | corro.ReduceOp) -> tuple[corro.ReduceOp, bool]:
    """Returns corro's reduction, and whether its result is to be divided by the number of ranks.

    Horovod's average is a sum, divided by the number of all ranks; corro's, by that of those that
    have not joined.
    """
    return (Sum.corros, True) if op is Average else (corros(op), False)


def reduction_of(op: object, average: bool | None) -> ReduceOp | corro.ReduceOp:
    """Returns the reduction that a call asks for: the average, if it does not say.

    Args:
        op: a reduction, its number, or None.
        average: how older scripts say it.

    Raises:
        ValueError: both are given.
    """
    if op is None and average is None:
        return Average
    if average is None:
        return known(op)
    if op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    warnings.warn(
        "Parameter `average` has been replaced with `op` and will be removed",
        DeprecationWarning,
        stacklevel=3,
    )
    return Average if average else Sum
