"""Measures each layer alone: the times that predictions are made of."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

import corro
import corro.torch as ct
from corro.torch.measuring.chain import Build, Chain

ROUNDS = 5


def profile_of(build: Build, chain: Chain, device: str, samples: Sequence[int]) -> dict[str, Any]:
    """Returns the profile file of these numbers of samples, the same on all ranks.

    All ranks measure at once, since a device that computes alone is faster than one among busy
    ones; every layer's time is the mean of its ranks' medians.
    """
    times: dict[str, list[dict[str, float]]] = {kind: [] for kind in dict.fromkeys(chain.kinds)}
    parameters = [each for layer in chain.layers for each in layer.parameters()]
    for count in samples:
        _, inputs, loss = build(count)
        forward: dict[str, list[float]] = defaultdict(list)
        backward: dict[str, list[float]] = defaultdict(list)
        for round_ in range(ROUNDS + 1):
            corro.barrier()
            _pass(chain, inputs, loss, forward, backward)
            if round_ == 0:  # It made gradients, and warmed caches up.
                forward.clear()
                backward.clear()
        for kind, measured in times.items():
            measured.append(
                {
                    "samples": count,
                    "forward": median(forward[kind]),
                    "backward": median(backward[kind]),
                }
            )
    update = _update(parameters)
    for parameter in parameters:
        parameter.grad = None
    mine = {"update": update, "layers": times}
    return {
        "corro_profile": 1,
        "device": device,
        "dtype": "f32",
        **_mean(ct.allgather_object(mine)),
    }


def _pass(
    chain: Chain,
    inputs: Tensor,
    loss: Any,
    forward: dict[str, list[float]],
    backward: dict[str, list[float]],
) -> None:
    held = []
    x = inputs
    for number, layer in enumerate(chain.layers):
        start = time.perf_counter()
        y = layer(x)
        if number + 1 == len(chain.layers):
            y = loss(y)
        forward[chain.kinds[number]].append(time.perf_counter() - start)
        held.append((x, y))
        x = y.detach().requires_grad_()
    gradient: Tensor | None = None
    for number in reversed(range(len(chain.layers))):
        x, y = held.pop()
        start = time.perf_counter()
        torch.autograd.backward(y, gradient)
        backward[chain.kinds[number]].append(time.perf_counter() - start)
        gradient = x.grad


def _update(parameters: Sequence[Tensor]) -> float:
    """Returns the optimizer's seconds for each parameter."""
    optimizer = torch.optim.AdamW(parameters, 1e-4)
    measured = []
    for _ in range(ROUNDS + 1):
        corro.barrier()
        start = time.perf_counter()
        optimizer.step()
        measured.append(time.perf_counter() - start)
    return median(measured[1:]) / sum(each.numel() for each in parameters)


def _mean(profiles: Sequence[Any]) -> Any:
    """Averages what each rank has measured, number by number."""
    first = profiles[0]
    if isinstance(first, dict):
        return {name: _mean([each[name] for each in profiles]) for name in first}
    if isinstance(first, list):
        return [_mean(each) for each in zip(*profiles, strict=True)]
    return sum(profiles) / len(profiles)
