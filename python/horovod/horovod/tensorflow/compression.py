"""What gradients travel as, under Horovod's names."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.compression import Compressor, NoneCompressor


class FP16Compressor(Compressor[Any]):
    """Floating-point numbers travel as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns it as float16, and the dtype that it has."""
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns it in dtype `ctx`."""
        return tf.cast(tensor, ctx) if ctx.is_floating else tensor


class Compression:
    """What `compression` may be."""

    none = NoneCompressor
    fp16 = FP16Compressor
