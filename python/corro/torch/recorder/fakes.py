"""Stand-ins without memory for a model's tensors, and the model as it was once they are gone.

Each module's `__dict__` is exchanged for a copy whose tensors are fake; afterwards the very same
`__dict__` is put back. So a recording sees what a forward pass changes (running statistics,
counters, hooks, caches), and the user's module keeps none of it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from corro.errors import InvalidArgumentError

DEEPEST = 6  # Containers inside of containers that are searched for tensors.
CPU = torch.device("cpu")


class Fakes:
    """Makes one fake for each tensor, on the CPU whatever the tensor's own device is."""

    def __init__(self, mode: Any) -> None:
        self._mode = mode
        self._made: dict[int, tuple[Tensor, Tensor]] = {}  # By id; the real one is kept alive.

    def of(self, real: Tensor) -> Tensor:
        """Returns the stand-in of a tensor; it needs a gradient if and only if `real` does."""
        if id(real) not in self._made:
            self._made[id(real)] = (real, self._make(real))
        return self._made[id(real)][1]

    def within(self, value: Any, depth: int = 0) -> Any:
        """Returns a copy of nested containers with fakes for tensors, other objects as they are."""
        if isinstance(value, Tensor):
            return self.of(value)
        if depth > DEEPEST:
            return value
        if type(value) in (list, tuple):
            return type(value)(self.within(item, depth + 1) for item in value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.within(item, depth + 1) for item in value))
        if type(value) in (dict, OrderedDict):
            items = ((key, self.within(item, depth + 1)) for key, item in value.items())
            return type(value)(items)
        return value

    def _make(self, real: Tensor) -> Tensor:
        if isinstance(real, UninitializedTensorMixin):
            raise InvalidArgumentError(
                "record: a lazy parameter has no shape yet; run the model once before"
            )
        with self._mode, torch.no_grad():
            let_go = isinstance(real, nn.Parameter) and 0 in real.stride()  # It is one element.
            if real.layout == torch.strided and not real.is_quantized and not let_go:
                shape, strides = tuple(real.shape), tuple(real.stride())
                fake = torch.empty_strided(shape, strides, dtype=real.dtype, device=CPU)
            else:
                fake = torch.empty(tuple(real.shape), dtype=real.dtype, device=CPU)
        if isinstance(real, nn.Parameter):
            fake = nn.Parameter(fake, requires_grad=real.requires_grad)
            fake.__dict__.update({k: v for k, v in real.__dict__.items() if k not in vars(fake)})
            return fake
        return fake.requires_grad_(real.requires_grad)


@contextmanager
def faked(model: nn.Module, fakes: Fakes) -> Iterator[None]:
    """Inside, `model`'s tensors are fakes; after it, each module has its own `__dict__` again."""
    modules = [each for each in model.modules() if not isinstance(each, torch.jit.ScriptModule)]
    own = [each.__dict__ for each in modules]
    gradients = [(each, each.grad) for each in model.parameters()]
    copies = [fakes.within(values) for values in own]
    try:
        for module, values in zip(modules, copies, strict=True):
            object.__setattr__(module, "__dict__", values)
        yield
    finally:
        for module, values in zip(modules, own, strict=True):
            object.__setattr__(module, "__dict__", values)
        for parameter, gradient in gradients:
            if parameter.grad is not gradient:
                parameter.grad = gradient


@contextmanager
def log_silenced() -> Iterator[None]:
    """Inside, torch logs no traceback of an operation that refuses fakes; who caught it tells."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Puts torch's generators back to where they were."""
    state = torch.get_rng_state()
    there = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    states = torch.cuda.get_rng_state_all() if there else []
    try:
        yield
    finally:
        torch.set_rng_state(state)
        if states:
            torch.cuda.set_rng_state_all(states)
