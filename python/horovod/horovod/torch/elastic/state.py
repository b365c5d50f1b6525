"""TorchState: a model, optimizers, samplers and plain attributes, copied at each commit()."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from horovod.common.basics import rank
from horovod.common.elastic import ObjectState
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)


class StateHandler:
    """How one kind of attribute is saved, restored, and made alike on all ranks."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Copies the value's state, for restore()."""
        raise NotImplementedError

    def restore(self) -> None:
        """Makes the value's state what it was at the last save()."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes it rank 0's on all ranks, and saves it."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Handles this value from here on."""
        self.value = value
        self.save()


class _HasState(StateHandler):
    """Of a value with state_dict() and load_state_dict()."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        # An optimizer goes on with the tensors that it is given.
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_HasState):
    """Of a module."""

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(_HasState):
    """Of an optimizer."""

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(_HasState):
    """Of an ElasticSampler: what is left is divided among the ranks that there are."""

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))
        self.save()


Registry = Sequence[tuple[type, type[StateHandler]]]

_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Registry:
    """Returns types and their handlers; the first that fits is taken."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Has states that are made from here on use these handlers."""
    global _registry
    _registry = registry


class TorchState(ObjectState):
    """A state of a model, its optimizer, and attributes: `TorchState(model, optimizer, epoch=0)`.

    Modules, optimizers and samplers stay the objects that they are; another one that is assigned is
    saved at once. Other attributes are whatever cloudpickle can write.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        given = {"model": model, "optimizer": optimizer}
        attributes = {name: value for name, value in given.items() if value is not None} | kwargs
        made = {name: _handler(value) for name, value in attributes.items()}
        handlers = {name: handler for name, handler in made.items() if handler is not None}
        plain = {name: value for name, value in attributes.items() if name not in handlers}
        vars(self).update({name: handler.value for name, handler in handlers.items()})
        self._handlers = handlers
        super().__init__(broadcast_object, rank, **plain)

    def __setattr__(self, name: str, value: Any) -> None:
        handler = vars(self).get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.sync()
        super().sync()


def _handler(value: Any) -> StateHandler | None:
    """Returns what handles the value; None: it is copied as it is."""
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None
