"""A layer's two operations in torch."""

from __future__ import annotations

from typing import Any

import torch
from torch._compile import _disable_dynamo

from corro.keras._rows import Rows


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, ids: torch.Tensor, rows: Rows) -> torch.Tensor:
        ctx.rows, ctx.anchor = rows, anchor
        ctx.save_for_backward(ids)
        return pulled(rows, ids)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (ids,) = ctx.saved_tensors
        ctx.rows.put_aside(ids.cpu().numpy(), gradients[0].detach().cpu().numpy())
        return torch.zeros_like(ctx.anchor), None, None


@_disable_dynamo  # torch.compile() is not to look at them.
def pulled(rows: Rows, ids: torch.Tensor) -> torch.Tensor:
    """Returns the rows of the ids, without a gradient."""
    return torch.from_numpy(rows.pull(ids.cpu().numpy())).to(ids.device)


@_disable_dynamo
def looked_up(rows: Rows, ids: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
    """Returns the rows of the ids; backward() puts their gradient aside."""
    found: torch.Tensor = _LookUp.apply(anchor, ids, rows)
    return found
