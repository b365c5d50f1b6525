"""Sequence parallelism: between products, each rank of an axis has some of the tokens.

    y = sum of x W2      each rank gets its tokens of the sum           scatter
    norms, residuals     a rank computes its tokens: rules of shapes.py
    z = y W1             each rank gets all tokens before the product   gather

A sum that is left so, and a whole that is brought together again, are as many bytes as the sum that
all get. What lies in between, and is kept for backward, is 1/ranks on each of them. That counts for
what W1 reads, too: its part is kept, and gathered again in backward.

From Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022,
section 4.2.2.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from corro.torch.parallel.tensor.division import Axis, Division, gather, scatter, summed
from corro.torch.parallel.tensor.split import Split, whole_of


def sum_of(tensor: Tensor, axis: Axis) -> Tensor:
    """Returns the sum of all ranks' tensors, divided along tokens if the axis does so. Blocks."""
    division = _tokens_of(tensor.shape, axis) if axis.cuts_tokens else None
    if division is None or not division.is_possible:
        return summed(tensor, axis)
    return Split(scatter(tensor, division), division, is_of_tokens=True)


def _tokens_of(shape: torch.Size, axis: Axis) -> Division | None:
    """Returns how tokens of a tensor [..., features] are divided: as those of the last product's
    input if they are as many, else along the dim before features."""
    if axis.layout is not None and axis.layout[0] == shape[:-1]:
        return axis.layout[1]
    if len(shape) < 3:
        return None
    return Division(axis, len(shape) - 2, shape[-2])


def columns(x: Split, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Returns x weight^T + bias of all tokens. Blocks.

    Args:
        x: [..., inputs], divided along tokens.
        weight: this rank's outputs, [outputs, inputs].
        bias: [outputs].
    """
    axis, division = x.division.axis, x.division
    if division.dim < x.dim() - 1:
        axis.layout = x.shape[:-1], division
    whole = axis.entered(x.local, division)
    result: Tensor = _Columns.apply(whole, x.local, weight, bias, division)
    return result


def handed_on(result: Tensor) -> tuple[Tensor, int]:
    """Returns what a stage hands on: its tokens, and how many the whole has; or a whole, and 0.
    Blocks where that has to be joined."""
    if isinstance(result, Split) and result.is_of_tokens:
        division = result.division
        if (division.dim, division.blocks) == (result.dim() - 2, 1):
            return result.local, division.length
    whole: Tensor = whole_of(result)
    return whole, 0


def received(tensor: Tensor, tokens: int, axis: Axis) -> Tensor:
    """Returns what the stage before has handed on."""
    if not tokens:
        return tensor
    return Split(tensor, Division(axis, tensor.dim() - 2, tokens), is_of_tokens=True)


class _Columns(torch.autograd.Function):
    """A linear layer that keeps a part of its input."""

    @staticmethod
    def forward(
        ctx: Any,
        whole: Tensor,
        part: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        division: Division,
    ) -> Tensor:
        ctx.division = division
        ctx.save_for_backward(part, weight)
        return F.linear(whole, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        part, weight = ctx.saved_tensors
        needs_whole, _, needs_weight, needs_bias, _ = ctx.needs_input_grad
        dtype = gradient.dtype  # That of autocast, perhaps.
        rows = gradient.flatten(0, -2)
        of_whole = of_weight = of_bias = None
        if needs_whole:
            of_whole = (gradient @ weight.to(dtype)).to(part.dtype)
        if needs_weight:
            again = gather if torch.is_grad_enabled() else ctx.division.axis.again
            whole = again(part, ctx.division).to(dtype)
            of_weight = (rows.t() @ whole.flatten(0, -2)).to(weight.dtype)
        if needs_bias:
            of_bias = rows.sum(0)
        return of_whole, None, of_weight, of_bias, None
