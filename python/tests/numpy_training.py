"""As training.py, with numpy alone: for tests of which torch is no subject."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

GLOBAL_BATCH = 24
SAMPLES = 100  # Of examples().
RATE = 0.05

Array = NDArray[np.float32]


class Network:
    """A hidden layer of tanh, and SGD with momentum: what an elastic state has as an attribute."""

    def __init__(self) -> None:
        chance = np.random.default_rng(3)
        shapes = [(6, 32), (32,), (32, 1), (1,)]
        self.weights = [(chance.normal(size=shape) / 4).astype(np.float32) for shape in shapes]
        self.momenta = [np.zeros_like(weight) for weight in self.weights]

    def gradients(self, x: Array, y: Array) -> Iterator[Array]:
        """Yields the mean squared error's derivative by each array, from the last one on."""
        w1, b1, w2, b2 = self.weights
        hidden = np.tanh(x @ w1 + b1)
        by_y = 2 * (hidden @ w2 + b2 - y) / np.float32(len(x))
        yield by_y.sum(0)
        yield hidden.T @ by_y
        by_hidden = by_y @ w2.T * (1 - hidden**2)
        yield by_hidden.sum(0)
        yield x.T @ by_hidden

    def step(self, gradients: list[Array]) -> None:
        """Applies what gradients() yields, or its mean over ranks."""
        for i, gradient in enumerate(reversed(gradients)):
            self.momenta[i] = np.float32(0.9) * self.momenta[i] + gradient
            self.weights[i] = self.weights[i] - np.float32(RATE) * self.momenta[i]

    def flat(self) -> Array:
        """Returns all that it has: weights, then momenta."""
        return np.concatenate([each.ravel() for each in (*self.weights, *self.momenta)])

    def set_flat(self, values: Array) -> None:
        arrays = like([*self.weights, *self.momenta], values.copy())
        self.weights, self.momenta = arrays[:4], arrays[4:]

    def quarter(self, step: int, quarter: int) -> Array:
        """Returns what a quarter of the batch gives to the gradients, one after the other."""
        x, y = (part[quarter::4] for part in batch(step))
        parts = list(self.gradients(x, y))
        return np.concatenate([part.ravel() / np.float32(4) for part in reversed(parts)])

    def step_with(self, quarters: list[Array]) -> None:
        gradients = like(self.weights, sum(quarters[1:], quarters[0]))
        self.step(gradients[::-1])

    def parameters(self) -> list[float]:
        return [float(value) for weight in self.weights for value in weight.flat]

    def state_dict(self) -> dict[str, list[Array]]:
        return {"weights": self.weights, "momenta": self.momenta}

    def load_state_dict(self, state: dict[str, list[Array]]) -> None:
        self.weights, self.momenta = state["weights"], state["momenta"]


def like(arrays: list[Array], flat: Array) -> list[Array]:
    """Returns arrays of these shapes, of values that follow each other."""
    ends = np.cumsum([each.size for each in arrays])
    parts = np.split(flat, ends[:-1])
    return [part.reshape(each.shape) for part, each in zip(parts, arrays, strict=True)]


def _with_labels(x: NDArray[Any]) -> tuple[Array, Array]:
    x = x.astype(np.float32)
    return x, np.sin(x.sum(1, keepdims=True))


def batch(step: int) -> tuple[Array, Array]:
    return _with_labels(np.random.default_rng(step).normal(size=(GLOBAL_BATCH, 6)))


def examples() -> tuple[Array, Array]:
    """A data set: x: [SAMPLES, 6] and y: [SAMPLES, 1]."""
    return _with_labels(np.random.default_rng(1000).normal(size=(SAMPLES, 6)))


def parameters_after(steps: int) -> list[float]:
    """What one process has after so many steps with batch()."""
    model = Network()
    for step in range(steps):
        model.step(list(model.gradients(*batch(step))))
    return model.parameters()


def network_after_quarters(steps: int) -> Network:
    """The same, bit for bit where each batch comes as four micro-batches."""
    model = Network()
    for step in range(steps):
        model.step_with([model.quarter(step, quarter) for quarter in range(4)])
    return model


def parameters_after_data_epochs(orders: list[list[int]], batch_size: int) -> list[float]:
    """What one process has after the examples in these orders, one after the other."""
    x, y = examples()
    model = Network()
    for order in orders:
        for first in range(0, len(order), batch_size):
            taken = order[first : first + batch_size]
            model.step(list(model.gradients(x[taken], y[taken])))
    return model.parameters()
