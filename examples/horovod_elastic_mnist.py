"""An elastic script of Horovod's, as its documentation teaches: horovodrun -np 3 --min-np 1 \
python horovod_elastic_mnist.py

Nothing in it knows of corro. The images are Fashion-MNIST of Debian's package
dataset-fashion-mnist.
"""

import argparse
import gzip

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=64, help="images a rank and step")
parser.add_argument("--lr", type=float, default=0.01, help="for one rank")
parser.add_argument("--images", type=int, default=60_000, help="of the training set")
parser.add_argument("--commit-every", type=int, default=5, help="steps")
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

train_set, test_set = load("train", args.images), load("t10k", 10_000)
sampler = hvd.elastic.ElasticSampler(train_set)
batches = DataLoader(train_set, batch_size=args.batch, sampler=sampler)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


def accuracy() -> float:
    """All ranks divide the test set among them."""
    model.eval()
    images, labels = (tensor[hvd.rank() :: hvd.size()] for tensor in test_set.tensors)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum()
    return hvd.allreduce(right, op=hvd.Sum, name="right").item() / len(test_set)


def on_reset() -> None:
    """The number of ranks is another one."""
    for group in optimizer.param_groups:
        group["lr"] = args.lr * hvd.size()


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    while state.epoch < args.epochs:
        model.train()
        for step, (images, labels) in enumerate(batches):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
            sampler.record_batch(step, args.batch)
            state.seen += len(images) * hvd.size()
            if (step + 1) % args.commit_every == 0:
                state.commit()
        state.accuracy = accuracy()
        if hvd.rank() == 0:
            print(f"epoch {state.epoch + 1} with {hvd.size()} ranks: accuracy {state.accuracy:.4f}")
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()


state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, seen=0, accuracy=0.0)
state.register_reset_callbacks([on_reset])
train(state)
if hvd.rank() == 0:
    print(f"demo: accuracy={state.accuracy:.4f} ranks={hvd.size()} images={state.seen}")
