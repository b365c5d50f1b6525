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
        return _Reducer(options, self.reduced_in_place)

    def reduced_in_place(self, gradients: Sequence[Any], options: Options) -> list[Any]:
        """As reduced(), but without new memory, if no other form of them travels."""
        if options.compression is not Compression.none:
            return self.reduced(gradients, options)
        own = [gradient.contiguous() for gradient in gradients]
        mpi_ops.grouped_allreduce_(own, **_how(options))
        return own

    def reduced(self, gradients: Sequence[Any], options: Options) -> list[Any]:
        return mpi_ops.grouped_allreduce(
            [gradient.contiguous() for gradient in gradients],
            compression=options.compression,
            **_how(options),
        )


def _how(options: Options) -> dict[str, Any]:
    return {
        "op": options.op,
        "prescale_factor": 1.0 / options.gradient_predivide_factor,
        "postscale_factor": options.gradient_predivide_factor,
        "process_set": options.process_set,
    }


BACK_END = _Torch()
