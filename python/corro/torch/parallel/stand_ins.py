"""What calls of layers that are left out return: tensors of the right shapes, without memory."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_map

from corro.errors import InvalidArgumentError
from corro.torch.parallel.borders import Place
from corro.torch.recorder.fakes import Fakes, faked, log_silenced, random_state_kept
from corro.torch.recorder.run import one_line
from corro.torch.recorder.trace import Tracer


class StandIns:
    """Computes them once for each call and each kind of arguments, on fake tensors."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def of(
        self, place: Place, module: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """Returns what `module(*args, **keywords)` would: all tensors are zeros.

        Each is one element, expanded: not to be written to.

        Raises:
            InvalidArgumentError: the module does not run on tensors without contents.
        """
        leaves = tree_flatten((args, keywords))[0]
        key = (place, tuple(map(_kind, leaves)))
        if key not in self._known:
            self._known[key] = _returned(place, module, args, keywords)
        device = next((each.device for each in leaves if isinstance(each, Tensor)), None)
        return tree_map(lambda each: _zeros(each, device), self._known[key])


def stand_in(
    shape: torch.Size, dtype: torch.dtype, device: torch.device | None, value: float = 0
) -> Tensor:
    """Returns a tensor that takes the memory of one element, which all of it is."""
    return torch.full((), value, dtype=dtype, device=device).expand(shape)


def _zeros(leaf: Any, device: torch.device | None) -> Any:
    return stand_in(leaf.shape, leaf.dtype, device) if isinstance(leaf, Tensor) else leaf


def _kind(leaf: Any) -> Hashable:
    if isinstance(leaf, Tensor):
        return (leaf.shape, leaf.dtype)
    if leaf is None or isinstance(leaf, (bool, int, float, str)):
        return leaf
    return type(leaf).__qualname__


def _returned(
    place: Place, module: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = Fakes(mode)
    with random_state_kept(), faked(module, fakes), torch.no_grad(), log_silenced():
        given, options = fakes.within(args), fakes.within(keywords)
        try:
            with torch._C.DisableTorchFunction(), mode, Tracer(module):
                return module.forward(*given, **options)
        except Exception as error:
            raise InvalidArgumentError(
                f"parallelize: {place.path}: cannot be left out of a stage: {one_line(error)}"
            ) from error
