"""torch below Keras: gradients are reduced by horovod.torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod._keras.on_arrays import ArrayBackEnd, ArrayReducer
from horovod.common.gradients import GradientReducer, Options
from horovod.torch import mpi_ops
from horovod.torch.compression import Compression


class _Reducer(ArrayReducer):
    # compile(jit_compile=True) gives a training step to torch.compile. What is before and after a
    # call is compiled; the engine's verbs are not traced.
    __call__ = torch.compiler.disable(ArrayReducer.__call__)  # type: ignore[no-untyped-call]


class _Torch(ArrayBackEnd):
    """Thread-safe: it has no state."""

    compression = Compression

    def reducer(self, options: Options) -> GradientReducer:
        return _Reducer(options, self.reduced)

    def reduced(self, gradients: Sequence[Any], options: Options) -> list[Any]:
        return mpi_ops.grouped_allreduce(
            [gradient.contiguous() for gradient in gradients],
            compression=options.compression,
            op=options.op,
            prescale_factor=1.0 / options.gradient_predivide_factor,
            postscale_factor=options.gradient_predivide_factor,
            process_set=options.process_set,
        )


BACK_END = _Torch()
