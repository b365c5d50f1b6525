"""Smaller forms in which gradients travel: codecs of the engine, and classes of one's own.

    corro.DistributedOptimizer(optimizer, named, compression=corro.Compression.bf16)

A codec of the engine belongs to the request: the engine encodes, reduces and decodes. Another
library can bring one, as a corro_codec of corro.h: `EngineCodec(ctypes.addressof(...))`.

In Python, a compressor is any class or object with compress() and decompress(): the small tensor is
reduced in the place of the whole one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch

from corro import _native

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Compressor(Protocol):
    """Makes tensors small, and whole again; its methods may be static, as in Horovod.

    In an elastic job reset(), if there is one, is called when ranks have come or gone: a step is
    done again, and what was kept of its gradients must not count twice.
    """

    def compress(self, tensor: Tensor) -> tuple[Tensor, Any]:
        """Returns what travels, and what decompress() needs.

        Shape and dtype of what travels follow from the tensor's alone: they are the same on every
        rank, each time. It is reduced element by element.
        """

    def decompress(self, tensor: Tensor, context: Any, /) -> Tensor:
        """Returns the whole tensor: of the reduced one, and this rank's context."""


@dataclass(frozen=True, slots=True)
class EngineCodec:
    """A codec of the engine: the address of a corro_codec, 0 for none.

    compress() and decompress() are for what is not reduced as it is here, such as a reducescatter;
    they leave everything as it is if `dtype` is None.
    """

    address: int
    dtype: torch.dtype | None = None

    def compress(self, tensor: Tensor) -> tuple[Tensor, torch.dtype]:
        """Returns the tensor, cast if that makes floating-point numbers smaller, and its dtype."""
        cast = (
            self.dtype is not None
            and tensor.dtype.is_floating_point
            and self.dtype.itemsize < tensor.dtype.itemsize
        )
        return tensor.to(self.dtype) if cast else tensor, tensor.dtype

    def decompress(self, tensor: Tensor, context: torch.dtype, /) -> Tensor:
        """Returns the tensor in its old dtype."""
        return tensor.to(context)


class Compression:
    """The codecs that are here."""

    none = EngineCodec(0)
    fp16 = EngineCodec(_native.cast_codec(_native.F16), torch.float16)
    bf16 = EngineCodec(_native.cast_codec(_native.BF16), torch.bfloat16)
