"""JAX below Keras: gradients are reduced by corro.jax, in what Keras's trainer jits."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from corro.errors import CorroError, make
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
                cause = _cause_of(error)
                if cause is None:
                    raise
                with raised_as_horovods():
                    raise cause from error

        return super().elastic(train)

    def on_reset(self) -> None:
        import_module("jax").clear_caches()  # The number of ranks is in what was compiled.


# What the end of an epoch is told with, by the names that JAX puts in front of an error's text.
_CODES = {"CANCELLED": 1, "DEADLINE_EXCEEDED": 4, "ABORTED": 10, "UNAVAILABLE": 14}
_TOLD = re.compile(rf"({'|'.join(_CODES)}): (.*on rank \d+.*)", re.DOTALL)


def _cause_of(error: Exception) -> CorroError | None:
    """Returns corro's error, if XLA has made this one of it; else None."""
    told = None if isinstance(error, CorroError) else _TOLD.match(str(error))
    return told and make(_CODES[told[1]], told[2], -1, "", "", False)


BACK_END = _Jax()
