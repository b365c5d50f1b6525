"""Main weights: parameters in bfloat16 or float16 whose optimizer steps a copy in f32.

    backward      a parameter's gradient is added up in f32, micro-batch by micro-batch
    step          the optimizer steps the main weight: no small update is rounded away
    after it      the parameter is the main weight, rounded

From Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.1. Of a parameter that
ranks share (shards.py) each keeps a part of the main weight alone. Of one that tensor parallelism
divides (tensor/parts.py) the main weight is of the rank's part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from corro.torch.parallel.sharded_optimizer import replace

DTYPE = torch.float32


def is_low(parameter: Tensor) -> bool:
    """Returns whether a parameter has less precision than its main weight."""
    return parameter.dtype in (torch.bfloat16, torch.float16)


def add_up(parameter: nn.Parameter, into: nn.Parameter) -> Any:
    """From now on the parameter's gradient is added to the other's; returns the hook's handle."""

    def move(_: Tensor) -> None:
        gradient = parameter.grad
        assert gradient is not None
        if into.grad is None:
            into.grad = gradient.to(into.dtype)
        else:
            into.grad.add_(gradient)
        parameter.grad = None

    return parameter.register_post_accumulate_grad_hook(move)  # type: ignore[no-untyped-call]


def take_changes(main: Tensor, parameter: Tensor) -> None:
    """Where the parameter is not the main weight, rounded, somebody has changed it: so it counts.

    Both have one shape; the main weight is written to.
    """
    changed = main.to(parameter.dtype) != parameter
    main.copy_(torch.where(changed, parameter.to(main.dtype), main))


class MainWeights:
    """Of parameters that a rank keeps, or of their parts. Used by one thread at a time."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """`parameters`: all are is_low(); by name."""
        self._parameters = dict(parameters)
        self.mains = {
            name: nn.Parameter(each.detach().to(DTYPE)) for name, each in parameters.items()
        }
        self.hooks = [add_up(each, self.mains[name]) for name, each in parameters.items()]

    @property
    def bytes(self) -> int:
        return sum(each.nbytes for each in self.mains.values())

    def write(self) -> None:
        """Makes the parameters what the optimizer has made of the main weights."""
        for name, parameter in self._parameters.items():
            parameter.data.copy_(self.mains[name].detach())

    def take(self) -> None:
        """Takes parameters as they are, which the user may have changed."""
        for name, parameter in self._parameters.items():
            take_changes(self.mains[name].data, parameter.data)

    def adopt(self, mains: Mapping[str, Tensor]) -> None:
        """Goes on with main weights of a checkpoint, of those that it has."""
        for name in self.mains.keys() & mains.keys():
            self.mains[name].data.copy_(mains[name])

    def step_mains(self, optimizer: torch.optim.Optimizer) -> None:
        """From now on the optimizer steps the main weights, with the state of the parameters."""
        for name, parameter in self._parameters.items():
            replace(optimizer, parameter, self.mains[name], casts=True)

    def step_parameters(self, optimizer: torch.optim.Optimizer, *, casts: bool) -> None:
        """From now on the optimizer steps the parameters again.

        Args:
            casts: it gets their state in their dtype.
        """
        for name, parameter in self._parameters.items():
            replace(optimizer, self.mains[name], parameter, casts=casts)
