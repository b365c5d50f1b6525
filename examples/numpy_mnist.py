"""Trains on Fashion-MNIST with numpy alone: corro run -np 2 python numpy_mnist.py

It is for images without torch, as the one that `make images` builds for pods. The images are
Debian's package dataset-fashion-mnist. What corro adds is marked with (corro).
"""

import argparse
import gzip
import os
import time

import numpy as np

import corro.numpy  # (corro)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch", type=int, default=64, help="images a rank and step")
parser.add_argument("--lr", type=float, default=0.05, help="for one rank; scaled by their number")
parser.add_argument("--checkpoint", help="written every epoch; resumes from it if it exists")
args = parser.parse_args()


def load(name: str, header: int) -> np.ndarray:
    with gzip.open(f"{args.data}/{name}-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def dataset(kind: str) -> tuple[np.ndarray, np.ndarray]:
    images = load(f"{kind}-images-idx3", 16).reshape(-1, 784)
    return (images.astype(np.float32) / 255 - 0.286) / 0.353, load(f"{kind}-labels-idx1", 8)


def forward(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hidden layer, and the logarithms of the classes' probabilities."""
    hidden = np.maximum(x @ weights[0] + weights[1], 0)
    scores = hidden @ weights[2] + weights[3]
    scores -= scores.max(1, keepdims=True)
    return hidden, scores - np.log(np.exp(scores).sum(1, keepdims=True))


def gradients(x: np.ndarray, labels: np.ndarray) -> tuple[float, list[np.ndarray]]:
    """The mean loss, and its derivative by each array of the weights."""
    hidden, logs = forward(x)
    rows = np.arange(len(x))
    by_scores = np.exp(logs)
    by_scores[rows, labels] -= 1
    by_scores /= len(x)
    by_hidden = by_scores @ weights[2].T * (hidden > 0)
    of_layers = [x.T @ by_hidden, by_hidden.sum(0), hidden.T @ by_scores, by_scores.sum(0)]
    return -logs[rows, labels].mean(), of_layers


corro.init()  # (corro) Who we are and where the others are comes from `corro run` or mpirun.
rank, ranks = corro.rank(), corro.size()
chance = np.random.default_rng(1)
weights = [
    (chance.normal(size=(784, 128)) * (2 / 784) ** 0.5).astype(np.float32),
    np.zeros(128, np.float32),
    (chance.normal(size=(128, 10)) * (2 / 128) ** 0.5).astype(np.float32),
    np.zeros(10, np.float32),
]
momenta = [np.zeros_like(weight) for weight in weights]
first = 0
if args.checkpoint and os.path.exists(args.checkpoint):
    with np.load(args.checkpoint) as state:
        weights = [state[f"weight{i}"] for i in range(4)]
        momenta = [state[f"momentum{i}"] for i in range(4)]
        first = int(state["epoch"]) + 1
for array in weights + momenta:
    corro.numpy.broadcast(array, out=array)  # (corro) All ranks start from what rank 0 has.
first = int(corro.numpy.broadcast(np.array(first)))  # (corro)

images, labels = dataset("train")
test_images, test_labels = dataset("t10k")
steps = len(images) // (args.batch * ranks)
start = time.monotonic()
for epoch in range(first, args.epochs):
    order = np.random.default_rng(epoch).permutation(len(images))  # The same on every rank ...
    rate = args.lr * ranks * (1 - epoch / args.epochs)
    for step in range(steps):
        begin = (step * ranks + rank) * args.batch  # (corro) ... of which each takes its part.
        mine = order[begin : begin + args.batch]
        loss, changes = gradients(images[mine], labels[mine])
        corro.numpy.grouped_allreduce(changes, outs=changes)  # (corro) The mean over the ranks.
        for weight, momentum, change in zip(weights, momenta, changes, strict=True):
            momentum[:] = 0.9 * momentum + change
            weight[:] -= rate * momentum
        if rank == 0 and step % 50 == 49:
            print(
                f"epoch {epoch + 1}/{args.epochs} step {step + 1}/{steps} loss {loss:.3f}",
                flush=True,
            )
    chosen = forward(test_images[rank::ranks])[1].argmax(1)  # (corro) Each tests its part.
    right = corro.numpy.allreduce(np.array((chosen == test_labels[rank::ranks]).sum()), corro.Sum)
    reached = float(right) / len(test_labels)
    if rank == 0:
        print(f"epoch {epoch + 1}/{args.epochs} accuracy {reached:.4f}", flush=True)
        if args.checkpoint:
            state = {f"weight{i}": weight for i, weight in enumerate(weights)}
            state |= {f"momentum{i}": momentum for i, momentum in enumerate(momenta)}
            with open(args.checkpoint + ".new", "wb") as file:
                np.savez(file, epoch=epoch, **state)
            os.replace(args.checkpoint + ".new", args.checkpoint)  # Never half a file.

if first < args.epochs and rank == 0:
    took = time.monotonic() - start
    speed = round((args.epochs - first) * steps * args.batch * ranks / took)
    print(f"demo: accuracy={reached:.4f} {ranks=} images_per_s={speed} seconds={took:.1f}")
