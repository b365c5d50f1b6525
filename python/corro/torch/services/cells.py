"""What one rank runs: cells, joined by edges.

A service is a Forward on each of its ranks. If gradients pass through it, a Backward follows on
each; gradients of replicas are summed by a Reduce; an Update steps the optimizer of a rank.

    Forward   takes tensors, calls the user's function, gives tensors; if a Backward follows, it
              keeps what came in as leaves of autograd, and what went out, until then
    Backward  takes the gradient of each tensor that went out, gives that of each that came in

An edge has one tensor a step, or a token, which says that something is done.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from corro.errors import InvalidArgumentError
from corro.torch.services.declared import Service
from corro.torch.services.log import Recorder

Tensors = list[Tensor | None]
Call = Callable[..., Any]


@dataclass(eq=False)
class Edge:
    """A channel of the plan, from one cell to another; of a Reduce, to several."""

    name: str
    kind: str
    """`tensor`, with a header; `flat`: elements alone, of which collectives are; or `token`."""
    feeder: Cell
    takers: list[Cell]
    slots: int = 2
    initial: Tensors = field(default_factory=list)
    """What is readable at the start."""
    output: int = 0
    """Of the feeder's results."""
    part: int = 0
    parts: int = 1
    """The feeder gives this part of the rows."""
    argument: int = 0
    """Of the taker's function."""
    active: bool = False
    """Whether a gradient comes back."""
    loops: bool = False
    """Whether it carries what an earlier step gave."""
    dtype: torch.dtype = torch.float32
    shape: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Returns what a tensor takes."""
        return 0 if self.kind == "token" else self.shape_bytes(self.shape)

    def shape_bytes(self, shape: Sequence[int]) -> int:
        """Returns what a tensor of another shape takes."""
        size: int = torch.empty((), dtype=self.dtype).element_size()
        for length in shape:
            size *= length
        return size


@dataclass(eq=False)
class Cell:
    """Fires once a step, on a rank."""

    name: str
    rank: int
    priority: int
    inputs: list[Edge] = field(default_factory=list)
    outputs: list[Edge] = field(default_factory=list)
    seconds: float = 0.0
    """That its first firing took."""

    @property
    def of(self) -> Service | None:
        """Returns the service that it is a part of."""
        return None

    def run(self, step: int, inputs: Tensors, call: Call) -> Tensors:
        """Returns one tensor for each output, None for tokens.

        Args:
            inputs: one for each input, None for tokens; its own to keep.
            call: calls a function with arguments, on the thread where services compute.
        """
        raise NotImplementedError


def call_here(function: Call, *arguments: Any) -> Any:
    """Calls a function on this thread; of a coroutine, runs it to its end."""
    result = function(*arguments)
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result


class Held(NamedTuple):
    """What a Backward needs of a step."""

    inputs: list[tuple[Edge, Tensor | None]]
    outputs: list[tuple[Edge, Tensor | None]]
    results: list[Tensor]


class Forward(Cell):
    """Calls the user's function."""

    def __init__(self, service: Service, replica: int, rank: int, tracked: bool) -> None:
        name = service.name if service.replicas == 1 else f"{service.name}[{replica}]"
        super().__init__(name, rank, 1)
        self.service = service
        self.replica = replica
        self.tracked = tracked
        self.recorder: Recorder | None = None
        self.held: dict[int, Held] = {}
        """Of each step that no Backward has taken yet."""
        self._device = device_of(service.module)

    @property
    def of(self) -> Service | None:
        return self.service

    def run(self, step: int, inputs: Tensors, call: Call) -> Tensors:
        leaves = [
            self._leaf(edge, tensor) for edge, tensor in zip(self.inputs, inputs, strict=True)
        ]
        grows = self.tracked or self.service.module is None
        arguments = self._arguments(step, leaves)
        begun = self.recorder and self.recorder.begin(step, self.service.function, arguments)
        results = self.results(arguments, grows, call)
        if self.recorder and begun:
            self.recorder.end(self.name, step, begun, results)
        outputs = [self._part(results, edge) for edge in self.outputs]
        if self.tracked:
            came = list(zip(self.inputs, leaves, strict=True))
            went = list(zip(self.outputs, outputs, strict=True))
            self.held[step] = Held(came, went, results)
        return [None if each is None else each.detach() for each in outputs]

    def results(self, arguments: Sequence[Any], grows: bool, call: Call) -> list[Tensor]:
        """Calls the function; `grows` says whether autograd's graph does."""

        def within(*given: Any) -> Any:
            with torch.set_grad_enabled(grows):
                return self.service.function(*given)

        target = (
            self.service.function if inspect.iscoroutinefunction(self.service.function) else within
        )
        return self._checked(call(target, *arguments))

    def _leaf(self, edge: Edge, tensor: Tensor | None) -> Tensor | None:
        if tensor is None or edge.kind == "token":
            return None
        moved = tensor.to(self._device)
        return moved.requires_grad_() if edge.active else moved

    def _arguments(self, step: int, leaves: Tensors) -> list[Any]:
        if not self.service.inputs:
            return [step]
        parts: list[list[Tensor]] = [[] for _ in self.service.inputs]
        for edge, leaf in zip(self.inputs, leaves, strict=True):
            if leaf is not None:
                parts[edge.argument].append(leaf)
        return [_joined(each) for each in parts]

    def _checked(self, result: Any) -> list[Tensor]:
        wanted = len(self.service.outputs)
        results = [] if wanted == 0 else [result] if wanted == 1 else result
        if wanted == 1 and isinstance(result, (tuple, list)) and len(result) == 1:
            results = list(result)
        if not isinstance(results, (tuple, list)) or len(results) != wanted:
            raise InvalidArgumentError(
                f"returns {_said(results)}, and has {wanted} outputs: a tuple of {wanted} tensors"
            )
        for each in results:
            if not isinstance(each, Tensor):
                raise InvalidArgumentError(
                    f"returns a {type(each).__name__}, not a tensor; one without outputs has "
                    "outputs=()"
                )
        return list(results)

    def _part(self, results: Sequence[Tensor], edge: Edge) -> Tensor | None:
        if edge.kind == "token":
            return None
        result = results[edge.output]
        if edge.parts == 1:
            return result
        if result.dim() == 0 or result.shape[0] < edge.parts:
            raise InvalidArgumentError(
                f"gives {tuple(result.shape)} to {edge.parts} replicas: too few rows"
            )
        return result.tensor_split(edge.parts)[edge.part]


class Backward(Cell):
    """Takes the gradients of what a Forward gave, and gives those of what it took."""

    def __init__(self, forward: Forward, loss: int | None) -> None:
        super().__init__(f"{forward.name}.backward", forward.rank, 0)
        self.forward = forward
        self._loss = loss
        """Which of the results is the loss."""

    @property
    def of(self) -> Service | None:
        return self.forward.service

    def run(self, step: int, inputs: Tensors, call: Call) -> Tensors:
        held = self.forward.held.pop(step)
        roots = [each for edge, each in held.outputs if edge.active and each is not None]
        given = [each for each in inputs if each is not None]
        gradients: Tensors = [each.to(root.device) for root, each in zip(roots, given, strict=True)]
        if self._loss is not None:
            roots.append(_scalar(held.results[self._loss]))
            gradients.append(None)
        call(torch.autograd.backward, roots, gradients)
        leaves = [each for edge, each in held.inputs if edge.active and each is not None]
        found: Tensors = [_gradient(each) for each in leaves]
        rest = self.outputs[len(found) :]
        return found + [self._flat() if edge.kind == "flat" else None for edge in rest]

    def _flat(self) -> Tensor:
        """Returns the gradients of all parameters, one after the other."""
        return torch.cat([_gradient(each).reshape(-1) for each in self.forward.service.parameters])


class Reduce(Cell):
    """Sums the gradients of replicas; in the plan it is a collective of their ranks."""

    def __init__(self, service: Service, ranks: tuple[int, ...]) -> None:
        super().__init__(f"{service.name}.reduce", ranks[0], 0)
        self.ranks = ranks

    @staticmethod
    def total(gradients: Tensors) -> Tensor:
        """Returns the sum, as the collective makes it: in the order of ranks."""
        first, *others = [each for each in gradients if each is not None]
        total = first.clone()
        for each in others:
            total += each
        return total


class Update(Cell):
    """Steps the optimizer with the gradients that this rank has."""

    def __init__(self, rank: int, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(f"update.{rank}", rank, -1)
        self._optimizer = optimizer

    def run(self, step: int, inputs: Tensors, call: Call) -> Tensors:  # noqa: ARG002
        for edge, flat in zip(self.inputs, inputs, strict=True):
            if flat is not None and isinstance(edge.feeder, Reduce):
                _spread(flat, edge.feeder.inputs[0].feeder)
        call(self._optimizer.step)
        self._optimizer.zero_grad(set_to_none=True)
        return [None for _ in self.outputs]


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Returns all rows, which may be written to: a leaf of autograd may not."""
    if len(parts) > 1:
        return torch.cat(list(parts))
    return parts[0].clone() if parts[0].requires_grad else parts[0]


def _spread(flat: Tensor, backward: Cell) -> None:
    """Puts the sums where the optimizer looks for gradients; where none came, it stays so."""
    assert isinstance(backward, Backward)
    start = 0
    for each in backward.forward.service.parameters:
        part = flat[start : start + each.numel()].view(each.shape)
        start += each.numel()
        if each.grad is not None:
            each.grad.copy_(part)


def _gradient(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def _scalar(loss: Tensor) -> Tensor:
    if loss.numel() != 1 or not loss.requires_grad:
        raise InvalidArgumentError(
            f"has to make the loss: one number that depends on a parameter, not {_said(loss)}"
        )
    return loss


def _said(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"{len(value)} values"
    return f"a {type(value).__name__}"


def device_of(module: nn.Module | None) -> torch.device:
    """Returns where a module's parameters are."""
    found = module.parameters() if module is not None else iter(())
    return next((each.device for each in found), torch.device("cpu"))
