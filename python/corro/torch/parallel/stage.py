"""One stage of a model: a forward of `loss(model, batch)` without the layers of other stages.

    from the stage before: a tensor   ->  its border's call returns, or takes, this one
    own layers                        ->  run as they are, or inside of a checkpoint
    layers of stages before           ->  return stand-ins
    at the border to the stage after  ->  the forward ends; that tensor is the result

Modules are changed during a forward alone, and in their `__dict__` alone: hooks, prints and
debuggers in own layers work as ever, and between steps the model is the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint

from corro.torch.parallel.borders import Border, Layer, Place
from corro.torch.parallel.randomness import Places
from corro.torch.parallel.sharding import Sharding
from corro.torch.parallel.stand_ins import StandIns
from corro.torch.parallel.tensor.split import on_part

Loss = Callable[[nn.Module, Any], Tensor]


@dataclass(slots=True)
class _Role:
    """What is different with one call."""

    left_out: bool = False
    recomputed: bool = False
    enters: int | None = None  # The layer that begins with it.
    leaves: int | None = None  # The layer that ends with it.
    receives: Border | None = None
    sends: Border | None = None


class _Ended(BaseException):
    """The border to the stage after was reached; no error, so that nobody's `except` catches it."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.tensor = tensor


class _Entry(torch.autograd.Function):
    """Returns a leaf's elements as what is no leaf, so that layers may write to it."""

    @staticmethod
    def forward(_: Any, leaf: Tensor) -> Tensor:
        return leaf.data

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return gradient


class Stage:
    """Layers [begin, end) of a model on this rank. Used by one thread at a time."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        layers: Sequence[Layer],
        begin: int,
        end: int,
        recomputed: Sequence[bool] = (),
        sharding: Sharding | None = None,
    ) -> None:
        """
        Args:
            recomputed: whether each own layer is computed again in backward; default: none is.
            sharding: hears when own calls begin and end.
        """
        self._model = model
        self._loss = loss
        self._stand_ins = StandIns()
        self._sharding = sharding
        self._roles = _roles(layers, begin, end, recomputed)
        self._modules = [
            (path, model.get_submodule(path)) for path in {each.path for each in self._roles}
        ]

    def forward(self, batch: Any, received: Tensor | None, places: Places | None = None) -> Tensor:
        """Returns what the stage after needs, or the loss.

        Args:
            received: from the stage before, a leaf that needs a gradient; None at the first stage.
                Layers may write to its elements.
            places: hears which layer runs, also of those that are left out.
        """
        with self._changed(received, places):
            try:
                return self._loss(self._model, batch)
            except _Ended as ended:
                return ended.tensor

    @contextmanager
    def _changed(self, received: Tensor | None, places: Places | None) -> Iterator[None]:
        """Inside, calls of modules play their roles."""
        changed = []
        try:
            for path, module in self._modules:
                play = _Play(self, path, module, received, places)
                module.__dict__["_call_impl"] = play.call
                changed.append(module)
            yield
        finally:
            for module in changed:
                del module.__dict__["_call_impl"]

    def role_of(self, place: Place) -> _Role | None:
        return self._roles.get(place)

    @property
    def stand_ins(self) -> StandIns:
        return self._stand_ins

    @property
    def sharding(self) -> Sharding | None:
        return self._sharding


class _Play:
    """The calls of one module in one forward."""

    def __init__(
        self,
        stage: Stage,
        path: str,
        module: nn.Module,
        received: Tensor | None,
        places: Places | None,
    ) -> None:
        self._stage = stage
        self._path = path
        self._module = module
        self._received = received
        self._places = places
        self._own: Callable[..., Any] = module._call_impl
        self._calls = 0

    def call(self, *args: Any, **keywords: Any) -> Any:
        place = Place(self._path, self._calls)
        self._calls += 1
        role = self._stage.role_of(place)
        if role is None:
            return self._own(*args, **keywords)
        args = self._passed(role, False, args)
        if self._places is not None and role.enters is not None:
            self._places.enter(role.enters)
        if role.left_out:
            result = self._stage.stand_ins.of(place, self._module, args, keywords)
        else:
            result = self._computed(place, role, args, keywords)
        if self._places is not None and role.leaves is not None:
            self._places.leave(role.leaves)
        return self._passed(role, True, result)

    def _passed(self, role: _Role, returned: bool, tree: Any) -> Any:
        """Takes the leaf out that the stage after needs, or puts in what the one before sent."""
        if role.sends is not None and role.sends.returned == returned:
            raise _Ended(tree_flatten(tree)[0][role.sends.leaf])
        if role.receives is not None and role.receives.returned == returned:
            leaves, shape = tree_flatten(tree)
            assert self._received is not None
            leaves[role.receives.leaf] = on_part(_Entry.apply, self._received)
            return tree_unflatten(leaves, shape)
        return tree

    def _computed(
        self, place: Place, role: _Role, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        sharding = self._stage.sharding
        if sharding is not None:
            sharding.enter(place)
        run = self._recomputed if role.recomputed else self._run
        result = run(args, keywords)
        if sharding is not None:
            sharding.leave(place, result)
        return result

    def _run(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return self._own(*args, **keywords)

    def _recomputed(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Runs the module's forward in a checkpoint; its hooks run once."""
        fields = self._module.__dict__
        forward, had = self._module.forward, "forward" in fields

        def in_checkpoint(*args: Any, **keywords: Any) -> Any:
            return checkpoint(forward, *args, use_reentrant=False, **keywords)

        fields["forward"] = in_checkpoint
        try:
            return self._own(*args, **keywords)
        finally:
            if had:
                fields["forward"] = forward
            else:
                del fields["forward"]


def _roles(
    layers: Sequence[Layer], begin: int, end: int, recomputed: Sequence[bool]
) -> dict[Place, _Role]:
    roles: dict[Place, _Role] = {}

    def role(place: Place) -> _Role:
        return roles.setdefault(place, _Role())

    for number, layer in enumerate(layers[:end]):
        if layer.calls:
            role(layer.calls[0]).enters = number
            role(layer.calls[-1]).leaves = number
        if number < begin:
            for call in layer.calls:
                role(call).left_out = True
            continue
        for call in layer.calls:
            role(call)
        if recomputed and recomputed[number - begin] and layer.recomputable is not None:
            role(layer.recomputable).recomputed = True
    if begin > 0:
        border = layers[begin].border
        assert border is not None
        role(border.call).receives = border
    if end < len(layers):
        border = layers[end].border
        assert border is not None
        role(border.call).sends = border
    return roles
