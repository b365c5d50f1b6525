"""Finds films for users: corro run -np 2 --servers 2 python two_tower.py

Two towers (Yi et al., 2019) on MovieLens 100k, which tools/movielens.py fetches: one makes a vector
of a user, the other one of a film, and their product says how well the two go together. In training
the films of the other samples of a batch are what a user did not choose. The last film that each
user liked is looked for among all films. What corro adds is marked (corro).
"""

import argparse
import csv
import os
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import corro.torch as corro  # (corro)
from corro import table  # (corro)

DATA = Path(__file__).resolve().parent.parent / "build/data/ml-100k"
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", type=Path, default=DATA)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch", type=int, default=256, help="samples a step of each rank")
parser.add_argument("--dim", type=int, default=32, help="elements of a vector")
parser.add_argument("--top", type=int, default=20, help="films that are looked at")
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()

USER = ("user", "age", "gender", "occupation")
ITEM = ("item", "year", "genre")
MOST_GENRES = 6
NOTHING = -1  # Fills a film's genres up to six.
TEMPERATURE = 0.1


def lines(name: str) -> list[list[str]]:
    if not (args.data / name).exists():
        raise SystemExit(f"there is no {args.data / name}: python tools/movielens.py fetches it")
    with open(args.data / name, newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]


class Ids:
    """Numbers the values of fields from 0, those of each field by themselves."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, int]] = {}

    def __call__(self, field: str, value: str) -> int:
        values = self.known.setdefault(field, {})
        return values.setdefault(value, len(values))


def dataset() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns users [U, 4], films [I, 8] with up to six genres, likes [N, 2], and last ones [U, 2].

    A like is the number of a user and of a film, in the order of time.
    """
    ids = Ids()
    rows = [list(zip(USER, line, strict=False)) for line in lines("ml-100k.user")]
    users = [[ids(field, value) for field, value in row] for row in rows]
    films = []
    for item, _, year, genres in lines("ml-100k.item"):
        own = [ids("genre", genre) for genre in genres.split()]
        films.append([ids("item", item), ids("year", year), *own])
        films[-1] += [NOTHING] * (MOST_GENRES - len(own))
    ratings = sorted(lines("ml-100k.inter"), key=lambda one: float(one[3]))
    likes = [(ids("user", u), ids("item", i)) for u, i, rating, _ in ratings if float(rating) >= 4]
    left = Counter(user for user, _ in likes)
    early, last = [], []
    for user, item in likes:
        left[user] -= 1
        (early if left[user] else last).append((user, item))
    return tuple(torch.tensor(part) for part in (users, films, early, last))


class Tower(nn.Module):
    """A bag of each field, and a network; the vectors have length 1."""

    def __init__(self, name: str, fields: tuple[str, ...]) -> None:
        super().__init__()
        how = {"mode": "mean", "padding_idx": NOTHING, "optimizer": table.Adagrad(lr=0.1)}
        start = table.Normal(0.0, 0.1)
        bags = [corro.EmbeddingTable(None, args.dim, name=f"{name}.{field}", initial=start, **how)
                for field in fields]  # fmt: skip
        self.bags = nn.ModuleList(bags)
        self.net = nn.Sequential(
            nn.Linear(len(fields) * args.dim, 64), nn.ReLU(), nn.Linear(64, args.dim)
        )

    def forward(self, ids: Tensor) -> Tensor:  # [B, fields], the last field has all further columns
        last = len(self.bags) - 1
        columns = [ids[:, i : i + 1] if i < last else ids[:, i:] for i in range(last + 1)]
        fields = [bag(part) for bag, part in zip(self.bags, columns, strict=True)]
        return F.normalize(self.net(torch.cat(fields, 1)), dim=1)


def train(rank: int, ranks: int) -> tuple[Tower, Tower]:
    """Returns both towers, trained on the likes that are not a user's last."""
    torch.manual_seed(args.seed)
    towers = nn.ModuleList([Tower("user", USER), Tower("item", ITEM)])
    optimizer = torch.optim.Adam(towers.parameters(), 1e-3)
    optimizer = corro.DistributedOptimizer(optimizer, towers.named_parameters())  # (corro)
    corro.broadcast_parameters(towers.state_dict())  # (corro)
    rows = corro.TableOptimizer(towers)  # (corro)
    common = torch.bincount(likes[:, 1], minlength=len(films)).float().add(1).log()
    steps = len(likes) // (args.batch * ranks)
    for epoch in range(args.epochs):
        order = torch.randperm(len(likes))[: steps * args.batch * ranks]  # Alike on every rank.
        for step, batch in enumerate(order.view(steps, ranks, -1)):
            chosen = likes[batch[rank]]
            users_of, films_of = towers[0](users[chosen[:, 0]]), towers[1](films[chosen[:, 1]])
            # A film that many like stands in many batches: that is taken off again.
            scores = users_of @ films_of.T / TEMPERATURE - common[chosen[:, 1]]
            same = chosen[:, 1][:, None] == chosen[:, 1]
            scores = scores.masked_fill(same & ~torch.eye(len(chosen), dtype=torch.bool), -1e9)
            loss = F.cross_entropy(scores, torch.arange(len(chosen)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows.step()  # (corro) The mean of all ranks' gradients, as that of the optimizer.
            if rank == 0 and step + 1 == steps:
                print(f"epoch {epoch + 1}/{args.epochs} loss {loss:.3f}", flush=True)
    return towers[0].eval(), towers[1].eval()


def found(scores: Tensor, asked: Tensor) -> Tensor:  # [A, films], [A, 2] -> [A]
    """Returns for each of these whether the film is among the best that the user has not seen."""
    place = {int(user): row for row, user in enumerate(asked[:, 0])}
    for user, film in likes.tolist():
        if user in place:
            scores[place[user], film] = -torch.inf
    return (scores.topk(args.top).indices == asked[:, 1:]).any(1)


torch.set_num_threads(1)  # What a step computes is too small to be shared among threads.
users, films, likes, last = dataset()
corro.init()  # (corro) Who we are and where the others are comes from `corro run`.
rank, ranks = corro.rank(), corro.size()
user_tower, item_tower = train(rank, ranks)
asked = last[rank::ranks]  # (corro) Each rank looks for its part.
with torch.no_grad():
    scores = user_tower(users[asked[:, 0]]) @ item_tower(films).T
reached = corro.allgather(found(scores, asked).float()).mean()  # (corro)
liked = torch.bincount(likes[:, 1], minlength=len(films)).float()
popular = found(liked.repeat(len(last), 1), last).float().mean()
if rank == 0:
    servers = os.environ.get("CORRO_SERVERS", "0")
    print(
        f"two_tower: recall@{args.top}={reached:.4f} popular={popular:.4f}"
        f" workers={ranks} servers={servers}"
    )
