"""What gradients travel as, under Horovod's names."""

from __future__ import annotations

from typing import Any

import numpy

from horovod.common.compression import Compressor, NoneCompressor


class FP16Compressor(Compressor[Any]):
    """Floating-point numbers travel as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns it as float16, and the dtype that it has."""
        floating = numpy.issubdtype(tensor.dtype, numpy.floating)
        return (tensor.astype(numpy.float16) if floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns it in dtype `ctx`."""
        return tensor.astype(ctx, copy=False)


class Compression:
    """What `compression` may be."""

    none = NoneCompressor
    fp16 = FP16Compressor
