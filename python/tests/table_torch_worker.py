"""Trains tables of corro.torch on every rank, and compares them with what torch trains alone.

Every rank knows all ranks' samples, so each of them can train the other model on all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.testing import assert_close

import corro.torch as corro
from corro import table as tables

ROWS, DIM, RATE, BATCH, STEPS = 30, 4, 0.2, 6, 6


def batch(step: int, rank: int) -> Tensor:
    draw = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(0, ROWS, (BATCH, 3), generator=draw)


def loss_of(model: nn.Module, ids: Tensor) -> Tensor:
    return (model(ids).squeeze(1) - ids.double().mean(1).float() / ROWS).square().mean()


def rows_of(layer: corro.EmbeddingTable) -> Tensor:
    return torch.from_numpy(layer.table.pull(torch.arange(ROWS).numpy()))


def model_of(layer: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(layer, nn.Linear(DIM, 8), nn.Tanh(), nn.Linear(8, 1))


def train_as_one_process(rank: int, ranks: int) -> None:
    """A table and dense weights beside it, of which every rank has its samples."""
    layer = corro.EmbeddingTable(ROWS, DIM, name="bags", optimizer=tables.SGD(lr=RATE))
    model, other = model_of(layer), model_of(nn.EmbeddingBag.from_pretrained(rows_of(layer), False))
    dense = torch.optim.SGD(model.parameters(), RATE)
    dense = corro.DistributedOptimizer(dense, model.named_parameters())
    rows, plain = corro.TableOptimizer(model), torch.optim.SGD(other.parameters(), RATE)
    for step in range(STEPS):
        dense.zero_grad()
        loss_of(model, batch(step, rank)).backward()
        layer.prefetch(batch(step + 1, rank))
        dense.step()
        rows.step()
        plain.zero_grad()
        loss_of(other, torch.cat([batch(step, one) for one in range(ranks)])).backward()
        plain.step()
        for ours, expected in zip(model[1:].parameters(), other[1:].parameters(), strict=True):
            assert_close(ours, expected)
        assert_close(rows_of(layer), other[0].weight.detach())


def train_unlike_each_other(rank: int, ranks: int) -> None:
    """As many passes as a rank's number, so that rank 0 has none; the other table is not used."""
    layer = corro.EmbeddingTable(None, DIM, name="rows", mode=None, optimizer=tables.SGD(lr=RATE))
    unused = corro.EmbeddingTable(None, DIM, name="another")
    rows, before = corro.TableOptimizer([unused, layer]), rows_of(layer)
    for number in range(rank):
        layer(torch.tensor([number, number, 20])).sum().backward()
    rows.step()
    passes = [sum(rank > number for rank in range(ranks)) for number in range(ROWS)]
    counts = 2 * torch.tensor(passes).float()
    counts[20] = sum(range(ranks))
    assert_close(rows_of(layer), before - RATE * counts[:, None] / ranks)


def main() -> None:
    torch.set_num_threads(1)
    corro.init()
    rank, ranks = corro.rank(), corro.size()
    train_as_one_process(rank, ranks)
    train_unlike_each_other(rank, ranks)
    print(f"rank {rank} of {ranks}: tables are as torch's layers")
    corro.shutdown()


main()
