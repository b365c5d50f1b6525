"""JAX below Keras: gradients are reduced by corro.jax, in what Keras's trainer jits."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from horovod._keras.on_arrays import ArrayBackEnd
from horovod._keras.reduction import Reduction
from horovod.common.exceptions import raised_as_horovods
from horovod.common.process_sets import member_group
from horovod.common.reduce_op import corros, known

_verbs: Any = import_module("corro.jax")


class _Jax(ArrayBackEnd):
    """Thread-safe: it has no state."""

    compression = _verbs.Compression

    def reduced(self, gradients: Sequence[Any], how: Reduction) -> list[Any]:
        with raised_as_horovods():
            return list(
                _verbs.grouped_allreduce(
                    list(gradients),
                    corros(known(how.op)),
                    prescale_factor=1.0 / how.predivide_factor,
                    postscale_factor=how.predivide_factor,
                    group=member_group(how.process_set, "allreduce"),
                    compression=how.compression,
                )
            )


BACK_END = _Jax()
