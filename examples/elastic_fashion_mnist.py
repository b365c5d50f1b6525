"""Trains on Fashion-MNIST while ranks are lost: corro run -np 3 --min-np 1 python \
elastic_fashion_mnist.py

Kill a rank, and the others go on with the step that it was in. It is fashion_mnist.py, and what is
different for that is marked with (elastic).
"""

import argparse
import gzip
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import corro.torch as corro

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=64, help="images a rank and step")
parser.add_argument("--lr", type=float, default=0.05, help="for one rank")
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()


def load(name: str, header: int) -> Tensor:
    with gzip.open(f"{args.data}/{name}-ubyte.gz") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=header)


def dataset(kind: str) -> tuple[Tensor, Tensor]:
    images = load(f"{kind}-images-idx3", 16).view(-1, 1, 28, 28)
    return (images.float() / 255 - 0.286) / 0.353, load(f"{kind}-labels-idx1", 8).long()


corro.init()
torch.manual_seed(args.seed)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
    nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.GELU(), nn.Linear(128, 10),
)  # fmt: skip
images, labels = dataset("train")
test_images, test_labels = dataset("t10k")
optimizer = torch.optim.SGD(model.parameters(), args.lr, 0.9, weight_decay=5e-4, nesterov=True)
optimizer = corro.DistributedOptimizer(optimizer, model.named_parameters())
# (elastic) It knows which images of a data epoch are left, and divides them among those who are.
sampler = corro.elastic.ElasticSampler(images, args.batch, seed=args.seed)
# (elastic) What all ranks have alike. There is no broadcast_parameters(): the state does that.
state = corro.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, steps=0, seen=0)


def set_learning_rate() -> None:
    """Warms up, and cools down along a cosine; grows with the square root of the number of ranks.

    (elastic) A function of the images that were seen, since nobody knows the number of steps.
    """
    done = (state.epoch + sampler.processed_num / len(images)) / args.epochs
    factor = min(done / 0.1, 0.5 + 0.5 * math.cos(math.pi * min(done, 1)))
    for group in optimizer.param_groups:
        group["lr"] = args.lr * math.sqrt(corro.size()) * factor


def accuracy() -> float:
    rank, ranks = corro.rank(), corro.size()  # (elastic) Asked for each time.
    with torch.no_grad():
        chosen = model(test_images[rank::ranks]).argmax(1)
    right = (chosen == test_labels[rank::ranks]).sum()
    return corro.allreduce(right, corro.Sum).item() / len(test_labels)


@corro.elastic.run  # (elastic) Called again, with the state, whenever ranks were lost.
def train(state: corro.elastic.TorchState) -> float:
    reached = 0.0
    while state.epoch < args.epochs:
        sampler.set_epoch(state.epoch)  # (elastic) One that has begun goes on.
        drawn = torch.Generator().manual_seed(args.seed + state.epoch)
        mirrored = torch.rand(len(images), 1, 1, 1, generator=drawn) < 0.5
        for step in sampler.steps():
            set_learning_rate()
            optimizer.zero_grad()
            for mine, weight in step:
                x = torch.where(mirrored[mine], images[mine].flip(3), images[mine])
                # (elastic) In the last step ranks may have different numbers of images.
                (F.cross_entropy(model(x), labels[mine]) * weight).backward()
            optimizer.step()
            # (elastic) What belongs to a step comes directly after it.
            step.record()
            state.steps += 1
            state.seen += step.samples
        reached = accuracy()
        if corro.rank() == 0:
            print(f"epoch {state.epoch + 1} with {corro.size()} ranks: accuracy {reached:.4f}")
        state.epoch += 1
    return reached


reached = train(state)
if corro.rank() == 0:
    print(
        f"demo: accuracy={reached:.4f} ranks={corro.size()} steps={state.steps} images={state.seen}"
    )
