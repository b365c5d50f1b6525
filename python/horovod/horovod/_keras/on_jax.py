"""JAX below Keras: gradients are reduced by corro.jax, in what Keras's trainer jits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from corro import _context
from corro.errors import CorroError
from horovod._keras.on_arrays import ArrayBackEnd
from horovod.common.exceptions import raised_as_horovods
from horovod.common.gradients import Options
from horovod.common.process_sets import member_group
from horovod.common.reduce_op import corros, known

_verbs: Any = import_module("corro.jax")


class _Jax(ArrayBackEnd):
    """Thread-safe: it has no state."""

    compression = _verbs.Compression

    def reduced(self, gradients: Sequence[Any], options: Options) -> list[Any]:
        with raised_as_horovods():
            return list(
                _verbs.grouped_allreduce(
                    list(gradients),
                    corros(known(options.op)),
                    prescale_factor=1.0 / options.gradient_predivide_factor,
                    postscale_factor=options.gradient_predivide_factor,
                    group=member_group(options.process_set, "allreduce"),
                    compression=options.compression,
                )
            )

    def elastic(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def train(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except (RuntimeError, ValueError) as error:
                cause = _context.cause_of(error)
                if cause is None or isinstance(error, CorroError):
                    raise
                with raised_as_horovods():
                    raise cause from error

        return super().elastic(train)

    def on_reset(self) -> None:
        import_module("jax").clear_caches()  # The number of ranks is in what was compiled.


BACK_END = _Jax()
