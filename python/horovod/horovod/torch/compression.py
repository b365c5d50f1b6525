"""Compression of what travels: corro's codecs, and users' own."""

from __future__ import annotations

from typing import Any

from corro.torch import Compression as _Codecs
from corro.torch.compression import EngineCodec as _Codec
from horovod.common.compression import Compressor

Codec = _Codec | Compressor[Any] | type[Compressor[Any]]


class Compression:
    """The choices."""

    none = _Codecs.none
    fp16 = _Codecs.fp16
    bf16 = _Codecs.bf16


NoneCompressor = Compression.none
FP16Compressor = Compression.fp16
