"""The reductions, numbered as in the C ABI."""

from __future__ import annotations

import enum


class ReduceOp(enum.IntEnum):
    """What becomes of the ranks' contributions; averages of integers round toward zero.

    ADASUM is adaptive summation: of two contributions (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b,
    the sum if they are orthogonal and the mean if they are equal; of more, pairwise. For allreduce
    of floating-point arrays. Source: Maleki et al., "Scaling Distributed Training with Adaptive
    Summation" (MLSys 2021, arXiv 2006.02924), section 3.
    """

    SUM = 0
    AVERAGE = 1
    MIN = 2
    MAX = 3
    PRODUCT = 4
    ADASUM = 5


Sum = ReduceOp.SUM
Average = ReduceOp.AVERAGE
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT
Adasum = ReduceOp.ADASUM
