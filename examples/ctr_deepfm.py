"""Predicts who likes which film: corro run -np 2 --servers 2 python ctr_deepfm.py

DeepFM (Guo et al., 2017) on MovieLens 100k, which tools/movielens.py fetches: 100 000 ratings, of
which the last fifth of each user's is predicted. The embeddings lie in tables of the job's servers.
In the end rank 0 trains alone, on the same batches, to compare. What corro adds is marked (corro).
"""

import argparse
import csv
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from subprocess import PIPE

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import corro.torch as corro  # (corro)
from corro import table  # (corro)

DATA = Path(__file__).resolve().parent.parent / "build/data/ml-100k"
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", type=Path, default=DATA)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=512, help="ratings a step, of all ranks together")
parser.add_argument("--dim", type=int, default=16, help="elements of an embedding")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--alone", action="store_true", help="print the area under the curve alone")
args = parser.parse_args()

FIELDS = ("user", "age", "gender", "occupation", "zip", "item", "year", "genres")
MOST_GENRES = 6
NOTHING = -1  # Fills a film's genres up to six.


def lines(name: str) -> list[list[str]]:
    if not (args.data / name).exists():
        raise SystemExit(f"there is no {args.data / name}: python tools/movielens.py fetches it")
    with open(args.data / name, newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]


class Ids:
    """Numbers the values of all fields, each field's from its own 2^32."""

    def __init__(self) -> None:
        self.known = {name: {} for name in FIELDS}

    def __call__(self, field: str, value: str) -> int:
        values = self.known[field]
        return (FIELDS.index(field) << 32) + values.setdefault(value, len(values))


def dataset() -> tuple[Tensor, Tensor, Tensor]:
    """Returns ids [N, 13], seven fields and up to six genres, labels [N], and which are late."""
    ids, of_user, of_item = Ids(), {}, {}
    for user, age, gender, occupation, code in lines("ml-100k.user"):
        values = zip(FIELDS, (user, age, gender, occupation, code), strict=False)
        of_user[user] = [ids(field, value) for field, value in values]
    for item, _, year, genres in lines("ml-100k.item"):
        own = [ids("genres", genre) for genre in genres.split()]
        padded = own + [NOTHING] * (MOST_GENRES - len(own))
        of_item[item] = [ids("item", item), ids("year", year), *padded]
    ratings = sorted(lines("ml-100k.inter"), key=lambda one: float(one[3]))
    rows = [of_user[user] + of_item[item] for user, item, _, _ in ratings]
    labels = [float(float(rating) >= 4) for _, _, rating, _ in ratings]
    of_users, before = Counter(user for user, *_ in ratings), Counter()
    late = []
    for user, *_ in ratings:
        late.append(before[user] >= of_users[user] * 4 // 5)
        before[user] += 1
    return torch.tensor(rows), torch.tensor(labels), torch.tensor(late)


class DeepFM(nn.Module):
    """A bag a field: weights of values, products of pairs of fields, and a network, summed up."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        how = {"mode": "mean", "padding_idx": NOTHING, "optimizer": table.Adagrad(lr=0.02)}
        start = table.Constant(0.0)
        self.weights = corro.EmbeddingTable(None, 1, name="weights", initial=start, **how)
        start = table.Normal(0.0, 0.05)
        self.factors = corro.EmbeddingTable(None, dim, name="factors", initial=start, **how)
        self.deep = nn.Sequential(
            nn.Linear(len(FIELDS) * dim, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
            nn.Linear(32, 1),
        )  # fmt: skip

    def forward(self, ids: Tensor) -> Tensor:  # [B, 13] -> [B]
        samples, values = ids.shape
        starts = torch.arange(samples)[:, None] * values + torch.arange(len(FIELDS))
        bags = ids.flatten(), starts.flatten()
        first = self.weights(*bags).view(samples, -1).sum(1)
        v = self.factors(*bags).view(samples, len(FIELDS), -1)
        pairs = (v.sum(1).square() - v.square().sum(1)).sum(1) / 2
        return first + pairs + self.deep(v.flatten(1)).squeeze(1)


def auc(scores: Tensor, labels: Tensor) -> float:
    """Returns how often a liked film has a higher score than another: of equal scores half."""
    _, place, count = scores.unique(return_inverse=True, return_counts=True)
    ranks = (count.cumsum(0) - (count.double() - 1) / 2)[place]  # From 1; of equals, the mean.
    liked = labels > 0
    n = int(liked.sum())
    return float((ranks[liked].sum() - n * (n + 1) / 2) / (n * (len(labels) - n)))


def trained(rank: int, ranks: int) -> DeepFM:
    """Returns a model that has learned from the ratings that are not late."""
    torch.manual_seed(args.seed)
    model = DeepFM(args.dim)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    optimizer = corro.DistributedOptimizer(optimizer, model.named_parameters())  # (corro)
    corro.broadcast_parameters(model.state_dict())  # (corro)
    rows = corro.TableOptimizer(model)  # (corro)
    steps, shows = len(train) // args.batch, rank == 0 and not args.alone
    for epoch in range(args.epochs):
        order = train[torch.randperm(len(train))[: steps * args.batch]]  # The same on every rank.
        for step, batch in enumerate(order.view(steps, ranks, -1)):
            mine = batch[rank]
            loss = F.binary_cross_entropy_with_logits(model(ids[mine]), labels[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows.step()  # (corro) The mean of all ranks' gradients, as that of the optimizer.
            if shows and (step % 20 == 19 or step + 1 == steps):
                done = 30 * (step + 1) // steps
                bar = "#" * done + "." * (30 - done)
                at = f"\repoch {epoch + 1}/{args.epochs}"
                print(f"{at} {bar} loss {loss:.3f}", end="", flush=True)
        if shows:
            print()
    return model.eval()


def predicted(model: DeepFM, chosen: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(ids[part]) for part in chosen.split(4096)])


def one_process() -> float:
    """Returns what this script reaches without the others: its tables lie in its own process."""
    environment = {key: own for key, own in os.environ.items() if not key.startswith("CORRO_")}
    environment["WORLD_SIZE"] = "1"
    command = [sys.executable, *sys.argv, "--alone"]
    return float(subprocess.run(command, env=environment, stdout=PIPE, check=True).stdout)


torch.set_num_threads(1)  # What a step computes is too small to be shared among threads.
ids, labels, late = dataset()
train, test = torch.nonzero(~late).flatten(), torch.nonzero(late).flatten()
corro.init()  # (corro) Who we are and where the others are comes from `corro run`.
rank, ranks = corro.rank(), corro.size()
if args.batch % ranks:
    raise SystemExit(f"--batch {args.batch} cannot be divided among {ranks} ranks")
model = trained(rank, ranks)
own = predicted(model, test[rank::ranks])  # (corro) Each rank predicts its part.
in_turn = torch.cat([test[other::ranks] for other in range(ranks)])
reached = auc(corro.allgather(own), labels[in_turn])  # (corro)
corro.shutdown()  # (corro)
if rank == 0 and args.alone:
    print(f"{reached:.6f}")
elif rank == 0:
    servers = os.environ.get("CORRO_SERVERS", "0")
    print(f"ctr: auc={reached:.4f} alone={one_process():.4f} workers={ranks} servers={servers}")
