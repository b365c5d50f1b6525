"""torch below Keras: gradients are reduced by horovod.torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod._keras.on_arrays import ArrayBackEnd
from horovod._keras.reduction import Reduction
from horovod.torch import mpi_ops
from horovod.torch.compression import Compression


class _Torch(ArrayBackEnd):
    """Thread-safe: it has no state."""

    compression = Compression

    def reduced(self, gradients: Sequence[Any], how: Reduction) -> list[Any]:
        return mpi_ops.grouped_allreduce(
            [gradient.contiguous() for gradient in gradients],
            compression=how.compression,
            op=how.op,
            prescale_factor=1.0 / how.predivide_factor,
            postscale_factor=how.predivide_factor,
            process_set=how.process_set,
        )


BACK_END = _Torch()
