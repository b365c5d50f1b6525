"""What ways to train a model of Keras with two ranks share: models, losses and times.

A way says how gradients get to other ranks; keras_ways.py has them. The models have gradients of
well-known sizes and do little else. Steps of two ranks and of a rank alone, of the same kind, take
turns. It is checked before that losses are those of one model that sees all ranks' batches.

Rank 0 prints a line of JSON for each model: {"case": "ResNet-50", "min_us": 1.0, "us": 1.0,
"alone_us": 1.0, "loss": 1.0}. `us` is by how much the median of the steps of two ranks is above
that of a rank alone, which is `alone_us`; `min_us` is the same of the shortest steps.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, Protocol

import numpy

keras: Any = import_module("tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") else "keras")

RANKS, BATCH, WIDTH, TURNS = 2, 4, 8, 2
RATE = 0.05
Shape = tuple[int, ...]
Ended = Callable[[], None]


class Way(Protocol):
    """What differs between the ways."""

    rank: int

    def alone(self, shapes: Sequence[Shape]) -> Any:
        """A model that this rank trains."""

    def together(self, shapes: Sequence[Shape]) -> Any:
        """A model that all ranks train."""

    def weigh(self, model: Any, weights: Sequence[Any]) -> None:
        """Gives a model that all ranks train its weights."""

    def train_alone(self, model: Any, batch: Any, steps: int, ended: Ended) -> None:
        """Takes steps with a batch; calls `ended` after each."""

    def train(self, model: Any, batch: Any, steps: int, ended: Ended) -> None:
        """The same with a model that all ranks train, and this rank's batch."""


# -- models ---------------------------------------------------------------------------------------


class Weights(keras.layers.Layer):  # type: ignore[misc]
    """One number for each sample, of all weights. No gradient follows from fewer numbers than it
    has: XLA would send those."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        super().__init__()
        self.shapes = shapes
        self.ops = getattr(keras, "ops", keras.backend)

    def build(self, _: Any) -> None:
        self.all = [
            self.add_weight(name=f"w{i}", shape=shape, initializer="zeros")
            for i, shape in enumerate(self.shapes)
        ]
        self.built = True

    def call(self, x: Any) -> Any:
        return sum(self.number(x, weight) for weight in self.all)

    def number(self, x: Any, weight: Any) -> Any:
        many = self.ops.dot(x, self.ops.reshape(weight, (WIDTH, -1)))
        return self.ops.mean(self.ops.square(many), axis=1, keepdims=True)


def resnet50() -> Iterator[Shape]:
    """25 557 032 parameters in 161 tensors (He et al. 2016)."""

    def convolution(inputs: int, outputs: int, size: int) -> list[Shape]:
        return [(size, size, inputs, outputs), (outputs,), (outputs,)]

    yield from convolution(3, 64, 7)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            yield from convolution(inputs, width, 1)
            yield from convolution(width, width, 3)
            yield from convolution(width, 4 * width, 1)
            if block == 0:
                yield from convolution(inputs, 4 * width, 1)
            inputs = 4 * width
    yield from [(inputs, 1000), (1000,)]


def gpt2_small() -> Iterator[Shape]:
    """124 439 808 parameters in 148 tensors (Radford et al. 2019)."""
    width = 768
    yield from [(50257, width), (1024, width)]
    for _ in range(12):
        yield from [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,)]
        yield from [(width,), (width,), (width, 4 * width), (4 * width,)]
        yield from [(4 * width, width), (width,)]
    yield from [(width,), (width,)]


MODELS = {"ResNet-50": resnet50, "GPT-2 small": gpt2_small}


def compiled(shapes: Sequence[Shape], optimizer: Any) -> Any:
    model = keras.Sequential([keras.Input((WIDTH,)), Weights(shapes)])
    # XLA in TensorFlow has no such collectives.
    on_tensorflow = keras.backend.backend() == "tensorflow"
    model.compile(optimizer, "mse", **({"jit_compile": False} if on_tensorflow else {}))
    return model


def fit(model: Any, batch: Any, steps: int, ended: Ended) -> None:
    x, y = (numpy.tile(part, (steps, 1)) for part in batch)
    size = len(batch[0])
    model.fit(x, y, batch_size=size, shuffle=False, verbose=0, callbacks=[calls(ended)])


def calls(ended: Ended) -> Any:
    """A callback that says when a step has ended."""
    return keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ended())  # noqa: ARG005


def batch_of(rank: int) -> tuple[Any, Any]:
    """Ranks' batches want very different weights."""
    random = numpy.random.default_rng(rank)
    x = random.random((BATCH, WIDTH), "float32")
    return x, rank + random.random((BATCH, 1), "float32")


# -- training -------------------------------------------------------------------------------------


def measure(way: Way, case: str, steps: int) -> None:
    shapes = list(MODELS[case]())
    alone, together = way.alone(shapes), way.together(shapes)
    loss = checked_loss(way, case, together, alone)
    own = batch_of(way.rank)
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(TURNS):
        times[True] += times_of(way.train, together, own, steps)
        times[False] += times_of(way.train_alone, alone, own, steps)
    if way.rank == 0:
        least, middle = (of(times[True]) - of(times[False]) for of in (min, statistics.median))
        line = {"case": case, "min_us": least, "us": middle, "loss": loss}
        print(json.dumps({**line, "alone_us": statistics.median(times[False])}), flush=True)


def times_of(train: Callable[..., None], model: Any, batch: Any, steps: int) -> list[float]:
    """Returns the microseconds of each step, from the end of the one before; the first two, in
    which functions are made, are left out."""
    ends: list[float] = []
    train(model, batch, steps + 2, lambda: ends.append(time.perf_counter()))
    return [(after - before) * 1e6 for before, after in pairwise(ends[1:])]


def checked_loss(way: Way, case: str, together: Any, alone: Any) -> float:
    """Returns the loss of some steps; ends the program unless it is that of one model that sees all
    ranks' batches."""
    random = numpy.random.default_rng(7)
    begin = [(random.random(one.shape, "float32") - 0.5) / 3 for one in alone.get_weights()]
    batches = [batch_of(rank) for rank in range(RANKS)]
    everything = tuple(numpy.concatenate(parts) for parts in zip(*batches, strict=True))
    way.weigh(together, begin)
    alone.set_weights(begin)
    way.train(together, batches[way.rank], 3, lambda: None)
    way.train_alone(alone, everything, 3, lambda: None)
    models = (begin, together.get_weights(), alone.get_weights())
    before, loss, wanted = (loss_of(weights, everything) for weights in models)
    if not math.isclose(loss, wanted, rel_tol=1e-4) or loss >= 0.99 * before:
        what = f"{case}: the loss went from {before} to {loss} on rank {way.rank}"
        sys.exit(f"{what}; it has to fall, to that of one model with all batches, {wanted}")
    return loss


def loss_of(weights: Sequence[Any], batch: Any) -> float:
    """The loss of a model with these weights; no framework has to make another function for it."""
    x, y = batch
    numbers = sum(((x @ one.reshape(WIDTH, -1)) ** 2).mean(1, keepdims=True) for one in weights)
    return float(((numbers - y) ** 2).mean())
