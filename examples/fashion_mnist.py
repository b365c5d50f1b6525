"""Trains on the 60 000 images of Fashion-MNIST: corro run -np 2 python fashion_mnist.py

The images are Debian's package dataset-fashion-mnist. What corro adds is marked with (corro).
"""

import argparse
import gzip
import os
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import corro.torch as corro  # (corro)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=64, help="images a rank and step")
parser.add_argument("--lr", type=float, default=0.05, help="for one rank; scaled by their number")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--checkpoint", help="written every epoch; resumes from it if it exists")
args = parser.parse_args()


def load(name: str, header: int) -> Tensor:
    with gzip.open(f"{args.data}/{name}-ubyte.gz") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=header)


def dataset(kind: str) -> tuple[Tensor, Tensor]:
    images = load(f"{kind}-images-idx3", 16).view(-1, 1, 28, 28)
    return (images.float() / 255 - 0.286) / 0.353, load(f"{kind}-labels-idx1", 8).long()


corro.init()  # (corro) Who we are and where the others are comes from `corro run`.
rank, ranks = corro.rank(), corro.size()
torch.manual_seed(args.seed)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
    nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.GELU(), nn.Linear(128, 10),
)  # fmt: skip
images, labels = dataset("train")
steps = len(images) // (args.batch * ranks)
lr = args.lr * ranks  # (corro) A step sees as many more images as there are ranks.
optimizer = torch.optim.SGD(model.parameters(), lr, 0.9, weight_decay=5e-4, nesterov=True)
optimizer = corro.DistributedOptimizer(optimizer, model.named_parameters())  # (corro)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=args.epochs * steps)

first = 0
if args.checkpoint and os.path.exists(args.checkpoint):
    state = torch.load(args.checkpoint, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    first = state["epoch"] + 1
corro.broadcast_parameters(model.state_dict())  # (corro) All ranks start from rank 0's weights,
corro.broadcast_optimizer_state(optimizer)  # (corro) and its momentum.


def accuracy(images: Tensor, labels: Tensor) -> float:
    with torch.no_grad():  # (corro) Each rank tests every ranks-th image.
        chosen = model(images[rank::ranks]).argmax(1)
    right = (chosen == labels[rank::ranks]).sum()
    return corro.allreduce(right, corro.Sum).item() / len(labels)


test_set = dataset("t10k")
start = time.monotonic()
for epoch in range(first, args.epochs):
    shuffle = torch.Generator().manual_seed(args.seed + epoch)  # The same order on every rank ...
    order = torch.randperm(len(images), generator=shuffle)[: steps * args.batch * ranks]
    mirrored = torch.rand(len(images), 1, 1, 1, generator=shuffle) < 0.5
    for step, batch in enumerate(order.view(steps, ranks, args.batch)):
        mine = batch[rank]  # (corro) ... of which each rank takes its part.
        x = torch.where(mirrored[mine], images[mine].flip(3), images[mine])
        loss = F.cross_entropy(model(x), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        corro.log(loss=loss, step=epoch * steps + step + 1, of=args.epochs * steps)  # (corro)
        if rank == 0 and (step % 20 == 19 or step + 1 == steps):
            done = 30 * (step + 1) // steps
            bar = f"\repoch {epoch + 1}/{args.epochs} " + "#" * done + "." * (30 - done)
            print(f"{bar} loss {loss:.3f}", end="", flush=True)
    reached = accuracy(*test_set)
    corro.log(
        accuracy=reached
    )  # (corro) Who looks at the dashboard sees both, and how long it takes.
    if rank == 0:
        print(f"  accuracy {reached:.4f}")
        if args.checkpoint:
            state = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
            state = {name: part.state_dict() for name, part in state.items()} | {"epoch": epoch}
            torch.save(state, args.checkpoint + ".new")
            os.replace(args.checkpoint + ".new", args.checkpoint)  # Never half a file.

if first < args.epochs and rank == 0:
    took = time.monotonic() - start
    speed = round((args.epochs - first) * len(order) / took)
    print(f"demo: accuracy={reached:.4f} {ranks=} images_per_s={speed} seconds={took:.1f}")
