"""Trains on Fashion-MNIST with numpy while workers come and go, and counts its samples.

A ConfigMap brings it to pods of test_node_elastic.py: `python elastic_training.py EPOCHS`.
"""

from __future__ import annotations

import gzip
import sys
import time

import numpy as np

import corro
import corro.numpy

DATA = "/usr/share/datasets/fashion-mnist"
EPOCHS = int(sys.argv[1])


def load(name: str, header: int) -> np.ndarray:
    with gzip.open(f"{DATA}/{name}-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def images(kind: str) -> tuple[np.ndarray, np.ndarray]:
    pixels = load(f"{kind}-images-idx3", 16).reshape(-1, 784)
    return pixels.astype(np.float32) / 255, load(f"{kind}-labels-idx1", 8)


class Stopwatch:
    """The longest time between two steps since it was asked last, in seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._longest = 0.0

    def step(self) -> None:
        now = time.monotonic()
        self._longest = max(self._longest, now - self._last)
        self._last = now

    def longest(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest


def gradient(weights: np.ndarray, x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of the summed loss of a linear classifier."""
    scores = x @ weights
    odds = np.exp(scores - scores.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    odds[np.arange(len(x)), labels] -= 1
    return x.T @ odds


corro.init()
stopwatch = Stopwatch()
x, labels = images("train")
sampler = corro.elastic.ElasticSampler(x, batch_size=100)
state = corro.elastic.State(
    weights=np.zeros((784, 10), np.float32), sampler=sampler, epoch=0, step=0, samples=0
)


@corro.elastic.run
def train(state: corro.elastic.State) -> None:
    while state.epoch < EPOCHS:
        sampler.set_epoch(state.epoch)
        for step in sampler.steps():
            parts = [np.asarray(batch) for batch, weight in step if weight > 0]
            taken = np.concatenate([np.zeros(0, np.int64), *parts])
            sums = np.append(gradient(state.weights, x[taken], labels[taken]).ravel(), len(taken))
            total = corro.numpy.allreduce(sums.astype(np.float32), op=corro.Sum)
            count = round(float(total[-1]))
            state.weights = state.weights - 0.1 * total[:-1].reshape(784, 10) / count
            state.samples += count
            state.step += 1
            corro.set_step(state.step)
            step.record()
            state.commit()
            stopwatch.step()
            if corro.rank() == 0 and state.step % 50 == 0:
                pause = f"at most {stopwatch.longest():.3f} s apart"
                print(f"step {state.step} of {corro.size()} ranks, {pause}", flush=True)
            time.sleep(0.01)  # As the work of a larger model.
        state.epoch += 1


train(state)
if corro.rank() == 0:
    test, truth = images("t10k")
    accuracy = float((np.argmax(test @ state.weights, 1) == truth).mean())
    print(f"samples {state.samples} epochs {state.epoch} accuracy {accuracy:.4f}", flush=True)
