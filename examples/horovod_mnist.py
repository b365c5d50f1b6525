"""A script of Horovod's, as its documentation teaches: horovodrun -np 2 python horovod_mnist.py

Nothing in it knows of corro. The images are Fashion-MNIST of Debian's package
dataset-fashion-mnist.
"""

import argparse
import gzip

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch", type=int, default=64, help="images a rank and step")
parser.add_argument("--images", type=int, default=60_000, help="of the training set")
parser.add_argument("--fp16-allreduce", action="store_true", help="halve what travels")
args = parser.parse_args()


def load(kind: str, count: int) -> TensorDataset:
    def read(name: str, header: int) -> Tensor:
        with gzip.open(f"{args.data}/{kind}-{name}-ubyte.gz") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=header)

    images = read("images-idx3", 16).view(-1, 1, 28, 28)[:count]
    return TensorDataset(
        (images.float() / 255 - 0.286) / 0.353, read("labels-idx1", 8)[:count].long()
    )


hvd.init()
torch.manual_seed(42)
torch.set_num_threads(1)
if torch.cuda.is_available():
    torch.cuda.set_device(hvd.local_rank())

train = load("train", args.images)
sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank())
batches = DataLoader(train, batch_size=args.batch, sampler=sampler)
tests = load("t10k", 10_000)
mine = DistributedSampler(tests, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
test_batches = DataLoader(tests, batch_size=500, sampler=mine)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * hvd.size(), momentum=0.9)
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), compression=compression
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)


def metric_average(value: float, name: str) -> float:
    return hvd.allreduce(torch.tensor(value), name=name).item()


for epoch in range(args.epochs):
    model.train()
    sampler.set_epoch(epoch)
    for step, (images, labels) in enumerate(batches):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % 100 == 0 and hvd.rank() == 0:
            print(f"epoch {epoch + 1} step {step}/{len(batches)} loss {loss.item():.3f}")
    model.eval()
    right = 0.0
    with torch.no_grad():
        for images, labels in test_batches:
            right += (model(images).argmax(1) == labels).float().sum().item()
    accuracy = metric_average(right / len(mine), "accuracy")
    if hvd.rank() == 0:
        print(f"demo: epoch={epoch + 1} accuracy={accuracy:.4f}")
