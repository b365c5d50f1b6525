"""Compression of what travels: corro's codecs, and users' own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corro.torch import Compression as _Codecs
from corro.torch.compression import EngineCodec as _Codec

if TYPE_CHECKING:
    from torch import Tensor


class Compressor:
    """What users' own compressors derive from; both methods are static, as in Horovod."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """Returns what travels, and what decompress() needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """Returns the tensor as it was."""
        raise NotImplementedError


Codec = _Codec | Compressor | type[Compressor]


class Compression:
    """The choices."""

    none = _Codecs.none
    fp16 = _Codecs.fp16
    bf16 = _Codecs.bf16


NoneCompressor = Compression.none
FP16Compressor = Compression.fp16
