"""Trains on the 60 000 images of Fashion-MNIST: corro run -np 2 python jax_fashion_mnist.py

The images are Debian's package dataset-fashion-mnist. What corro adds is marked with (corro).
It needs JAX and Optax.
"""

import argparse
import gzip
import os
import pickle
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import corro.jax  # (corro)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=64, help="images a rank and step")
parser.add_argument("--lr", type=float, default=0.05, help="for one rank; scaled by their number")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--checkpoint", help="written every epoch; resumes from it if it exists")
args = parser.parse_args()


def load(name: str, header: int) -> np.ndarray:
    with gzip.open(f"{args.data}/{name}-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def dataset(kind: str) -> tuple[np.ndarray, np.ndarray]:
    images = load(f"{kind}-images-idx3", 16).reshape(-1, 28, 28, 1)
    return (images.astype(np.float32) / 255 - 0.286) / 0.353, load(f"{kind}-labels-idx1", 8)


def layer(key: jax.Array, *shape: int) -> dict[str, jax.Array]:
    bound = int(np.prod(shape[:-1])) ** -0.5
    return {"weight": jax.random.uniform(key, shape, minval=-bound, maxval=bound),
            "bias": jnp.zeros(shape[-1])}  # fmt: skip


def convolved(x: jax.Array, part: dict[str, jax.Array]) -> jax.Array:
    dims = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, part["weight"], (1, 1), "SAME", dimension_numbers=dims)
    x = jax.nn.gelu(x + part["bias"])
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4


def model(weights: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    x = convolved(convolved(x, weights[0]), weights[1]).reshape(len(x), -1)
    x = jax.nn.gelu(x @ weights[2]["weight"] + weights[2]["bias"])
    return x @ weights[3]["weight"] + weights[3]["bias"]


def loss_of(weights: list[dict[str, jax.Array]], x: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(model(weights, x), labels).mean()


corro.init()  # (corro) Who we are and where the others are comes from `corro run`.
rank, ranks = corro.rank(), corro.size()
keys = jax.random.split(jax.random.key(args.seed), 4)
shapes = [(3, 3, 1, 16), (3, 3, 16, 32), (32 * 7 * 7, 128), (128, 10)]
weights = [layer(key, *shape) for key, shape in zip(keys, shapes, strict=True)]
images, labels = dataset("train")
steps = len(images) // (args.batch * ranks)
lr = args.lr * ranks  # (corro) A step sees as many more images as there are ranks.
rates = optax.cosine_onecycle_schedule(args.epochs * steps, lr)
optimizer = optax.chain(optax.add_decayed_weights(5e-4), optax.sgd(rates, 0.9, nesterov=True))
optimizer = corro.jax.DistributedOptimizer(optimizer)  # (corro)
state = optimizer.init(weights)

first = 0
if args.checkpoint and os.path.exists(args.checkpoint):
    with open(args.checkpoint, "rb") as file:
        weights, state, first = pickle.load(file)
# (corro) All ranks start from rank 0's weights, and its momentum.
weights, state = corro.jax.broadcast_parameters((weights, state))
first = corro.jax.broadcast_object(first)  # (corro)


@jax.jit
def step(weights, state, x, labels):
    loss, gradients = jax.value_and_grad(loss_of)(weights, x, labels)
    updates, state = optimizer.update(gradients, state, weights)  # (corro) The mean of all ranks'.
    return optax.apply_updates(weights, updates), state, loss


chosen = jax.jit(lambda weights, x: model(weights, x).argmax(1))


def accuracy(images: np.ndarray, labels: np.ndarray) -> float:
    own = images[rank::ranks], labels[rank::ranks]  # (corro) Each rank tests its part.
    right = (chosen(weights, own[0]) == own[1]).sum()
    return float(corro.jax.allreduce(right, corro.Sum)) / len(labels)


test_set = dataset("t10k")
start = time.monotonic()
for epoch in range(first, args.epochs):
    chance = np.random.default_rng(args.seed + epoch)  # The same order on every rank ...
    order = chance.permutation(len(images))[: steps * args.batch * ranks]
    mirrored = chance.random((len(images), 1, 1, 1)) < 0.5
    for number, batch in enumerate(order.reshape(steps, ranks, args.batch)):
        mine = batch[rank]  # (corro) ... of which each rank takes its part.
        x = np.where(mirrored[mine], images[mine, :, ::-1], images[mine])
        weights, state, loss = step(weights, state, x, labels[mine])
        if rank == 0 and (number % 20 == 19 or number + 1 == steps):
            done = 30 * (number + 1) // steps
            bar = f"\repoch {epoch + 1}/{args.epochs} " + "#" * done + "." * (30 - done)
            print(f"{bar} loss {loss:.3f}", end="", flush=True)
    reached = accuracy(*test_set)
    if rank == 0:
        print(f"  accuracy {reached:.4f}")
        if args.checkpoint:
            with open(args.checkpoint + ".new", "wb") as file:
                pickle.dump((weights, state, epoch + 1), file)
            os.replace(args.checkpoint + ".new", args.checkpoint)  # Never half a file.

if first < args.epochs and rank == 0:
    took = time.monotonic() - start
    speed = round((args.epochs - first) * len(order) / took)
    print(f"demo: accuracy={reached:.4f} {ranks=} images_per_s={speed} seconds={took:.1f}")
