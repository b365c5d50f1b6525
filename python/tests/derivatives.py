"""Derivatives of the first orders through a verb, against those of one process.

The one process has every rank's tensors and says with torch alone what the verb makes of them. Each
rank has a loss of its own; what is differentiated is their sum. The next order's losses are
functions of the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Tensors = Sequence[torch.Tensor]

ORDERS = 3


def value(index: int, rows: int) -> torch.Tensor:
    """Returns what a rank gives the verb is the square of: small numbers, different everywhere."""
    return torch.linspace(0.2, 1.0, 2 * rows, dtype=torch.float64).view(rows, 2) + 0.1 * index


def assert_same_derivatives(
    index: int,
    rows: Sequence[int],
    together: Callable[[torch.Tensor], torch.Tensor],
    alone: Callable[[Tensors], Tensors],
) -> None:
    """Checks this rank's part: it is the index-th, and each rank gives as many rows as `rows`."""
    values = [value(i, count) for i, count in enumerate(rows)]
    wanted = _derivatives(range(len(rows)), values, alone)
    got = _derivatives([index], [values[index]], lambda xs: [together(x) for x in xs])
    for order in range(ORDERS):
        torch.testing.assert_close(got[order][0], wanted[order][index], rtol=1e-10, atol=0)


def _derivatives(
    indices: Sequence[int], values: Tensors, verb: Callable[[Tensors], Tensors]
) -> list[Tensors]:
    leaves = [x.clone().requires_grad_() for x in values]
    found, results = [], verb([x.square() for x in leaves])
    for order in range(ORDERS):
        total = sum(
            _loss(order, index, result) for index, result in zip(indices, results, strict=True)
        )
        results = torch.autograd.grad(total, leaves, create_graph=True, materialize_grads=True)
        found.append(results)
    return found


def _loss(order: int, index: int, result: torch.Tensor) -> torch.Tensor:
    """That of the first rank is linear: what comes back on this rank does not depend on x."""
    if order == 0 and index == 0:
        return result.sum()
    weights = torch.linspace(0.1, 0.2, result.numel(), dtype=torch.float64).view(result.shape)
    return ((weights + 0.1 * index) * result.square()).sum()
