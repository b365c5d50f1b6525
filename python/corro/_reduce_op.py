"""The reductions, numbered as in the C ABI."""

from __future__ import annotations

import enum


class ReduceOp(enum.IntEnum):
    """What becomes of the ranks' contributions; averages of integers round toward zero."""

    SUM = 0
    AVERAGE = 1
    MIN = 2
    MAX = 3
    PRODUCT = 4


Sum = ReduceOp.SUM
Average = ReduceOp.AVERAGE
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT
