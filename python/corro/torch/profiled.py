"""Operations in torch's profiler: `corro:all_reduce` and so on, with the shapes of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch._C import _profiler

if TYPE_CHECKING:
    from torch import Tensor

is_on: Callable[[], bool] = torch._C._autograd._profiler_enabled


def begin(verb: str, inputs: Sequence[Tensor]) -> Callable[[], None]:
    """Begins an event and returns what ends it, on any thread."""
    shown = [torch.view_as_real(t) if t.is_complex() else t for t in inputs]
    try:
        event = _profiler._RecordFunctionFast(f"corro:{verb}", shown, {})
    except TypeError:  # Older torch notes no inputs; its events end where they begin.
        return lambda: None
    event.__enter__()
    # The thread that ends it is also the one that lets go of it: on the thread that began it the
    # profiler would take that for the end, and the event for one that is not asynchronous.
    begun = [event]
    return lambda: begun.pop().__exit__(None, None, None)
