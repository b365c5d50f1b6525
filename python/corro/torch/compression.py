"""Smaller numbers on the wire: gradients are cast before a reduction and back after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Compressor:
    """Casts floating-point tensors to `dtype`; None: leaves all as they are."""

    dtype: torch.dtype | None

    def wire_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Returns the dtype in which a tensor of this dtype travels."""
        if self.dtype is None or not dtype.is_floating_point:
            return dtype
        return self.dtype if _bytes(self.dtype) < _bytes(dtype) else dtype

    def compress(self, tensor: Tensor) -> tuple[Tensor, torch.dtype]:
        """Returns what travels, and what decompress needs."""
        return tensor.to(self.wire_dtype(tensor.dtype)), tensor.dtype

    def decompress(self, tensor: Tensor, context: torch.dtype) -> Tensor:
        """Returns the tensor in its old dtype."""
        return tensor.to(context)


class Compression:
    """The choices."""

    none = Compressor(None)
    fp16 = Compressor(torch.float16)
    bf16 = Compressor(torch.bfloat16)


def _bytes(dtype: torch.dtype) -> int:
    return torch.empty((), dtype=dtype).element_size()
