"""The parameters of a stage of which each rank of an axis keeps a part.

The optimizer steps the parts. Between steps the model's own parameters have no memory, and read as
NaN; while a step runs, modules have splits in their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from corro.torch.parallel.stand_ins import stand_in
from corro.torch.parallel.tensor.choice import Choice
from corro.torch.parallel.tensor.division import Axis
from corro.torch.parallel.tensor.experts import banks_of, divided
from corro.torch.parallel.tensor.split import Split, autograd_functions_get_wholes


class Parts:
    """Used by one thread at a time. What is collective is called by all ranks of the axis."""

    def __init__(self, model: nn.Module, choices: Mapping[str, Choice], axis: Axis) -> None:
        named = dict(model.named_parameters())
        self._model, self._axis = model, axis
        self.names = tuple(choices)
        self.parameters = tuple(named[name] for name in choices)
        self.divisions = {
            name: choice.of(named[name].shape, axis) for name, choice in choices.items()
        }
        self._divisions = tuple(self.divisions.values())
        self.parts = tuple(
            nn.Parameter(self.cut(number, each.detach()), each.requires_grad)
            for number, each in enumerate(self.parameters)
        )
        self.is_whole = True
        banks = [each for each in banks_of(model) if each.names[0] in choices]
        self._banks = {each.module: self.divisions[each.names[0]] for each in banks}
        self._of_banks = {name for each in banks for name in each.names}

    def share(self, name: str) -> float:
        """Returns by what this rank's squares of a gradient count in the sum over all ranks."""
        return 1.0 if name in self.divisions else 1 / self._axis.size

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Inside, modules have splits instead of the parameters, and banks of experts parts."""
        instead = {
            id(parameter): part if name in self._of_banks else Split.of_parameter(part, division)
            for (name, division), parameter, part in zip(
                self.divisions.items(), self.parameters, self.parts, strict=True
            )
        }
        changed = [
            (module._parameters, name, parameter)
            for module in self._model.modules()
            for name, parameter in module._parameters.items()
            if id(parameter) in instead
        ]
        try:
            for parameters, name, own in changed:
                parameters[name] = instead[id(own)]  # type: ignore[assignment]
            wholes = autograd_functions_get_wholes() if self._axis.size > 1 else nullcontext()
            with wholes, divided(self._banks):
                yield
        finally:
            for parameters, name, own in changed:
                parameters[name] = own

    # --- Whole parameters -----------------------------------------------------------------------

    def gather(self) -> None:
        """Makes the parameters whole. Blocks."""
        for number, (parameter, part) in enumerate(zip(self.parameters, self.parts, strict=True)):
            parameter.data = self.join(number, part.detach())
        self.is_whole = True

    def take(self) -> None:
        """Takes into the parts what whole parameters are, which the user may have changed."""
        for parameter, part, division in zip(
            self.parameters, self.parts, self._divisions, strict=True
        ):
            part.data.copy_(division.part(parameter.detach()))

    def drop(self) -> None:
        """Frees the parameters until they are gathered again."""
        for each in self.parameters:
            each.data = stand_in(each.shape, each.dtype, each.device, float("nan"))
        self.is_whole = False

    def cut(self, number: int, like: Tensor) -> Tensor:
        """Returns this rank's part of a tensor like parameter `number`."""
        return self._divisions[number].part(like).clone(memory_format=torch.contiguous_format)

    def join(self, number: int, part: Tensor) -> Tensor:
        """Returns a tensor like parameter `number`, of all ranks' parts of it. Blocks."""
        return self._divisions[number].joined(part)

    def joined(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns tensors like parameters, by name, of all ranks' parts where those are divided.
        Blocks."""
        wholes = {
            name: self.join(number, own[name])
            for number, name in enumerate(self.names)
            if name in own
        }
        return {**own, **wholes}

    def own(self, wholes: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns tensors like parameters, by name; this rank's parts where those are divided."""
        parts = {
            name: self.cut(number, wholes[name])
            for number, name in enumerate(self.names)
            if name in wholes
        }
        return {**wholes, **parts}
