"""corro.elastic for torch: a model and its optimizer as a state, and streams of samples."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from corro import _context
from corro.elastic import ElasticSampler, State, Step, run, scale_learning_rate
from corro.elastic._state import Adopt, differences
from corro.errors import InvalidArgumentError, UnimplementedError
from corro.torch.checkpoint import (
    Layouts,
    OnDisk,
    TorchContents,
    loaded_optimizer,
    misfit_of_optimizers,
    misfit_of_tensors,
    named_optimizer,
    read_tree,
)
from corro.torch.delta_optimizer import DeltaOptimizerBase
from corro.torch.elastic_streams import ElasticStreams
from corro.torch.optimizer_state import load_state, receive_state
from corro.torch.parameters import broadcast_parameters
from corro.torch.wrapped import WrappedOptimizer

if TYPE_CHECKING:
    from corro import _checkpoint
    from corro.torch.sharded_state import ShardedState

__all__ = [
    "ElasticSampler",
    "ElasticStreams",
    "ShardedState",
    "State",
    "Step",
    "TorchState",
    "run",
    "scale_learning_rate",
]


class TorchState(State):
    """A model, its optimizer and attributes, all of which all ranks have alike::

        state = corro.elastic.TorchState(model, optimizer, step=0)

    Nothing is copied: parameters change in the optimizer's step() alone, when gradients have been
    reduced, so the state is always that after so many steps. A step is a call of step() that was
    over. Without an optimizer it is what lies between two calls of commit().

    sync() sends parameters, buffers and the optimizer's state in place.
    """

    model: nn.Module | None
    optimizer: torch.optim.Optimizer | None

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **attributes: Any,
    ) -> None:
        """`optimizer`: what DistributedOptimizer() has returned, or one whose user reduces."""
        _check(model, optimizer, attributes)
        super().__init__(**attributes)
        self.model = model
        self.optimizer = optimizer
        if optimizer is not None:
            self._count_steps_of(optimizer)

    def _count_steps_of(self, optimizer: torch.optim.Optimizer) -> None:
        this = weakref.ref(self)  # Or the optimizer would keep it.

        def count(*_: Any) -> None:
            state = this()
            if state is not None:
                state._steps += 1
                _context.end_step()

        optimizer.register_step_post_hook(count)

    def _enter(self, is_first: bool) -> None:
        if torch.distributed.is_available():  # Not in every build of torch's.
            from corro.torch.default_group import default_group

            default_group.renew()
        super()._enter(is_first)

    def sync(self) -> None:
        super().sync()
        self._tell_steps()

    def _tell_steps(self) -> None:
        if isinstance(self.optimizer, WrappedOptimizer):
            self.optimizer._steps = self._steps  # The launcher is told the next one.

    def _tree(self) -> dict[str, Any]:
        tree = super()._tree()
        if self.model is not None:
            # As they are, not detached: tied ones are the same object, on all ranks.
            tree["model"] = self.model.state_dict(keep_vars=True)
        if self.optimizer is not None:
            tree["optimizer"] = named_optimizer(self.optimizer, self.model)
        return tree

    def _stored(self, tree: dict[str, Any]) -> TorchContents:
        return TorchContents(tree)

    def _read(self, opened: _checkpoint.Opened) -> dict[str, Any]:
        layouts = Layouts(self._tree(), self.optimizer, self.model)
        tree: dict[str, Any] = read_tree(OnDisk(opened), layouts)
        return tree

    def _misfit(self, tree: dict[str, Any]) -> str:
        parts = {"model": self.model, "optimizer": self.optimizer}
        ours = ["attributes", *(name for name, part in parts.items() if part is not None)]
        if text := differences("part", tree, ours):
            return text
        texts = [super()._misfit(tree)]
        if self.model is not None:
            texts.append(misfit_of_tensors(tree["model"], self.model.state_dict()))
        if self.optimizer is not None:
            here = named_optimizer(self.optimizer, self.model)
            texts.append(misfit_of_optimizers(tree["optimizer"], here))
        return "; ".join(text for text in texts if text)

    def _adopt_tree(self, tree: dict[str, Any], step: int) -> None:
        if self.model is not None:
            weights = OrderedDict(tree["model"])
            # The versions of modules, which some of them ask for.
            weights._metadata = self.model.state_dict()._metadata  # type: ignore[attr-defined]
            self.model.load_state_dict(weights)
        if self.optimizer is not None:
            load_state(
                self.optimizer, loaded_optimizer(tree["optimizer"], self.optimizer, self.model)
            )
        super()._adopt_tree(tree, step)
        self._tell_steps()

    def _steps_at_commit(self) -> int:
        return super()._steps_at_commit() if self.optimizer is None else self._steps

    def _receive(self, root: int, is_alike: bool) -> list[Adopt]:
        adopts = super()._receive(root, is_alike)
        if self.model is not None:
            in_place = is_alike or _context.rank() == root
            adopts.append(_receive_model(self.model, root, in_place))
        if self.optimizer is not None:
            adopts.append(receive_state(self.optimizer, root, None, _context.world()))
        return adopts


def _check(model: object, optimizer: object, attributes: dict[str, Any]) -> None:
    if not isinstance(model, nn.Module | None):
        raise InvalidArgumentError(f"TorchState: model is a {type(model).__name__}")
    if not isinstance(optimizer, torch.optim.Optimizer | None):
        raise InvalidArgumentError(f"TorchState: optimizer is a {type(optimizer).__name__}")
    if isinstance(optimizer, torch.optim.LBFGS | DeltaOptimizerBase):
        what = "LBFGS" if isinstance(optimizer, torch.optim.LBFGS) else "op=Adasum"
        raise UnimplementedError(
            f"TorchState: a step() of an optimizer with {what} communicates after it has begun to"
            " change things, and cannot be done again where it has failed"
        )
    for name, value in attributes.items():
        if isinstance(value, torch.optim.Optimizer):
            raise UnimplementedError(
                f"TorchState: {name} is an optimizer, and its steps are not counted: put all"
                " parameters into one, as groups"
            )


def _receive_model(model: nn.Module, root: int, in_place: bool) -> Adopt:
    """Receives the root's parameters and buffers: in place, or as a copy that is yet to be adopted.

    In place if they are the root's already, but for buffers: where this ends in the middle, they
    still are.
    """
    own = {
        name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)
    }
    filled = own if in_place else {name: torch.empty_like(value) for name, value in own.items()}
    broadcast_parameters(filled, root)

    def adopt() -> None:
        for name, value in own.items():
            if not in_place:
                value.copy_(filled[name])  # state_dict() has detached it.

    return adopt


def __getattr__(name: str) -> Any:
    if name == "ShardedState":  # It is made of this module's TorchState.
        return import_module("corro.torch.sharded_state").ShardedState
    raise AttributeError(f"module 'corro.torch.elastic' has no attribute {name!r}")
