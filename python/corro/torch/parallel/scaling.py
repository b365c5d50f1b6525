"""What is done to all gradients of a step at once: clipping them, and scaling for float16.

The norm is that of one process's gradients: each element counts once, on whichever rank it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn

from corro.torch.parallel.sharding import Sharding
from corro.torch.parallel.shares import Share
from corro.torch.parallel.tensor.parts import Parts

DYNAMIC = "dynamic"
_INTERVAL = 2000


def refusal_of(max_norm: object, loss_scale: object) -> str | None:
    """Returns what is wrong with these options of parallelize()."""
    if max_norm is not None and not _is_above_0(max_norm):
        return f"parallelize: max_norm: {max_norm!r} is no number above 0"
    if loss_scale not in (None, DYNAMIC) and not _is_above_0(loss_scale):
        return f'parallelize: loss_scale: {loss_scale!r} is no number above 0, nor "{DYNAMIC}"'
    return None


def _is_above_0(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 < value < math.inf


class Scaling:
    """Clips to a norm, and scales losses so that small gradients are not 0 in float16.

    A dynamic scale is halved when gradients overflow, and doubled after 2000 steps without that,
    from 2**16 on, as torch's GradScaler does it (Micikevicius et al., "Mixed Precision Training",
    ICLR 2018, section 3.2).
    """

    def __init__(self, max_norm: float | None, loss_scale: float | str | None) -> None:
        self._max_norm = max_norm
        self._scales = loss_scale is not None
        self._moves = loss_scale == DYNAMIC
        self.loss_scale = 2.0**16 if self._moves else float(loss_scale or 1)
        """By what losses are multiplied before backward."""
        self.norm: float | None = None
        """Of the last step's gradients, before clipping; None: nobody has asked for it."""
        self._good = 0  # Steps since the scale has changed.

    def squares(self, shares: Sequence[Share], sharding: Sharding, parts: Parts) -> float:
        """Returns this rank's part of the sum of all gradients' squares."""
        if self._max_norm is None and not self._scales:
            return 0.0
        owned = [share for share in shares if share.group.rank() == 0]
        return sum(
            float(each.grad.detach().double().square().sum()) * parts.share(name)
            for name, each in _stepped(owned, sharding)
            if each.grad is not None
        )

    def scale(self, shares: Sequence[Share], sharding: Sharding, squares: float) -> bool:
        """Scales gradients back, and clips them; returns whether they are to be used.

        Args:
            squares: the sum over all ranks.
        """
        if self._max_norm is None and not self._scales:
            return True
        self.norm = math.sqrt(squares) / self.loss_scale
        clip = 1.0
        if self._max_norm is not None:
            clip = min(1.0, self._max_norm / (self.norm + 1e-6))
        stepped = _stepped(shares, sharding)
        gradients = [each.grad for _, each in stepped if each.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, clip / self.loss_scale)
        is_finite = math.isfinite(squares)
        self._move(is_finite)
        return is_finite or not self._scales

    def adopt(self, loss_scale: float) -> None:
        """Goes on with the scale of a checkpoint, unless a number was asked for."""
        if self._moves:
            self.loss_scale, self._good = loss_scale, 0

    def _move(self, is_finite: bool) -> None:
        if not self._moves:
            return
        self._good = self._good + 1 if is_finite else 0
        if not is_finite:
            self.loss_scale /= 2
        elif self._good == _INTERVAL:
            self.loss_scale, self._good = self.loss_scale * 2, 0


def _stepped(shares: Iterable[Share], sharding: Sharding) -> Iterator[tuple[str, nn.Parameter]]:
    """Yields what the optimizer steps, each behind the name of its parameter."""
    for share in shares:
        yield from zip(share.names, share.parameters, strict=True)
    for shard in sharding.shards:
        yield from shard.named_parts
