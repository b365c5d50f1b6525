"""What one rank does in a plan: it computes its stage, or waits instead where cores lack."""

from __future__ import annotations

import time
from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import corro
from corro.torch.measuring.candidates import Candidate
from corro.torch.measuring.chain import Build, Chain


class Stage(Protocol):
    """Called by the plan's services, and at the end of a step."""

    gradients: Tensor
    """Of all parameters, in one piece."""

    def forward(self, firing: corro.Firing, /) -> None: ...
    def backward(self, firing: corro.Firing, /) -> None: ...
    def update(self) -> None: ...


class ComputedStage:
    """Computes layers [begin, end) of a model of its own with torch."""

    def __init__(
        self, candidate: Candidate, begin: int, end: int, chain: Chain, build: Build
    ) -> None:
        size = candidate.micro_batch
        self._first, self._last = begin == 0, end == len(chain.layers)
        self._takes = None if self._first else chain.boundary(begin - 1, size)
        self._gives = None if self._last else chain.boundary(end - 1, size)
        self._parts = 1 / candidate.micro_batches
        full = candidate.recompute == "full"
        model, self._inputs, self._loss = build(size)
        assert isinstance(model, nn.Sequential)
        span = range(begin, end)
        self._layers = [(model[chain.items[i]], full and chain.repeated[i]) for i in span]
        parameters = list(nn.ModuleList(layer for layer, _ in self._layers).parameters())
        self.gradients = _in_one_piece(parameters)
        # A stage may be the loss alone.
        self._optimizer = torch.optim.AdamW(parameters, 1e-4) if parameters else None
        self._held: dict[int, tuple[Tensor, Tensor]] = {}

    def forward(self, firing: corro.Firing) -> None:
        x = self._inputs
        if self._takes is not None:
            x = _tensor(firing.inputs[-1], self._takes).clone().requires_grad_()
        y = x
        for layer, recomputes in self._layers:
            y = checkpoint(layer, y, use_reentrant=False) if recomputes else layer(y)
        if self._gives is None:
            y = self._loss(y) * self._parts
        else:
            _tensor(firing.outputs[-1], self._gives).copy_(y.detach())
        self._held[firing.micro] = x, y

    def backward(self, firing: corro.Firing) -> None:
        x, y = self._held.pop(firing.micro)
        gradient = None if self._gives is None else _tensor(firing.inputs[-1], self._gives)
        torch.autograd.backward(y, gradient)
        if self._takes is not None:
            assert x.grad is not None
            _tensor(firing.outputs[-1], self._takes).copy_(x.grad)

    def update(self) -> None:
        if self._optimizer:
            self._optimizer.step()
        self.gradients.zero_()


class WaitedStage:
    """Waits as long as the profile says that layers [begin, end) take."""

    def __init__(
        self, candidate: Candidate, begin: int, end: int, chain: Chain, profile: dict[str, Any]
    ) -> None:
        times = [
            time_
            for i in range(begin, end)
            for time_ in profile["layers"][chain.kinds[i]]
            if time_["samples"] == candidate.micro_batch
        ]
        again = [chain.repeated[i] and candidate.recompute == "full" for i in range(begin, end)]
        self._forward = sum(each["forward"] for each in times)
        self._backward = sum(
            each["backward"] + each["forward"] * repeats
            for each, repeats in zip(times, again, strict=True)
        )
        layers = nn.ModuleList(chain.layers[begin:end])
        count = sum(each.numel() for each in layers.parameters())
        self._update = profile["update"] * count
        self.gradients = torch.zeros(count)

    def forward(self, _: corro.Firing) -> None:
        time.sleep(self._forward)

    def backward(self, _: corro.Firing) -> None:
        time.sleep(self._backward)

    def update(self) -> None:
        time.sleep(self._update)


def _tensor(slot: memoryview, shape: tuple[int, ...]) -> Tensor:
    return torch.frombuffer(slot, dtype=torch.float32, count=prod(shape)).view(shape)


def _in_one_piece(parameters: list[nn.Parameter]) -> Tensor:
    """Makes gradients of parameters parts of one tensor, which is returned."""
    whole = torch.zeros(sum(each.numel() for each in parameters))
    parts = torch.split(whole, [each.numel() for each in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
    return whole
