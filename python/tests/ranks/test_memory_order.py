"""Weights of one rank lie in another memory order than the others': results are right."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch_version import NEW
from training import assert_same_on_all_ranks

import corro.numpy as cn
import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("process_group")]

SHAPES = [
    (4, 3, 2, 2),
    (2, 3, 2, 2, 2),
    (4, 3),
    (3, 2, 4),
    (4, 3, 1, 1),
    (1, 1, 2, 2),
    (0, 3),
    (5,),
]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """Like it where torch has a word for it; else with dims turned around."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if x.dim() in formats:
        return x.contiguous(memory_format=formats[x.dim()])
    return x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim())))


def gaps(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x], -1)[..., 0]


def turned(x: torch.Tensor) -> torch.Tensor:
    """Neither row-major nor channels_last."""
    return x.transpose(0, -1).contiguous().transpose(0, -1)


LAYOUTS = [channels_last, turned, gaps]
RANKS = {
    "one": lambda: corro.rank() == corro.size() - 1,
    "all": lambda: True,
    "first": lambda: corro.rank() == 0,
}


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(1)
        self.all = nn.ParameterList(torch.randn(shape, generator=random) for shape in SHAPES)

    def forward(self, seed: int) -> torch.Tensor:
        random = torch.Generator().manual_seed(seed)
        factors = [torch.randn(param.shape, generator=random) for param in self.all]
        parts = [
            (param * f).sum() + (param**2 * f).sum()
            for param, f in zip(self.all, factors, strict=True)
        ]
        return torch.stack(parts).sum()


def laid_out(model: nn.Module, layout: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    for param in model.parameters():
        param.data = layout(param.data)
    return model


class Halves:
    """A compressor in Python."""

    @staticmethod
    def compress(x: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        return x.half(), x.dtype

    @staticmethod
    def decompress(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype)


def step_alone(model: nn.Module, optimizer: torch.optim.Optimizer, seeds: list[int]) -> None:
    optimizer.zero_grad()
    (sum(model(seed) for seed in seeds) / len(seeds)).backward()
    optimizer.step()


def assert_equal(model: nn.Module, reference: nn.Module, exact: bool = True) -> None:
    assert_same_on_all_ranks(model)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if exact else {"rtol": 1e-2, "atol": 1e-2}
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"groups": 3},
        {"bucket_bytes": 0},
        {"compression": corro.Compression.fp16},
        {"compression": Halves},
    ],
    ids=["plain", "groups", "alone", "fp16", "compressor"],
)
@pytest.mark.parametrize("who", RANKS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_weights_in_different_orders(
    layout: Callable[[torch.Tensor], torch.Tensor], who: str, arguments: dict[str, Any]
) -> None:
    model = Weights()
    if RANKS[who]():
        laid_out(model, layout)
    strides = [param.stride() for param in model.parameters()]
    optimizer = corro.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        model.named_parameters(),
        **arguments,
    )
    reference = Weights()
    alone = torch.optim.SGD(reference.parameters(), lr=0.01, momentum=0.9)
    for step in range(3):
        seeds = [step * 10 + rank for rank in range(corro.size())]
        step_alone(reference, alone, seeds)
        optimizer.zero_grad()
        model(seeds[corro.rank()]).backward()
        optimizer.step()
        assert_equal(model, reference, exact="compression" not in arguments)
    assert [param.stride() for param in model.parameters()] == strides
    if layout is not gaps:
        for param in model.parameters():
            assert param.grad.stride() == param.stride()


@pytest.mark.skipif(not NEW, reason="CPUs have fused optimizers since torch 2.4")
@pytest.mark.parametrize("who", RANKS)
@pytest.mark.parametrize("layout", [channels_last, turned])
@pytest.mark.parametrize("op", [corro.Average, corro.Adasum], ids=lambda op: op.name)
def test_a_fused_optimizer_finds_gradient_and_state_in_the_order_of_the_weight(
    layout: Callable[[torch.Tensor], torch.Tensor], who: str, op: corro.ReduceOp
) -> None:
    """Its step walks through their memory at once, whatever their strides are."""
    model, reference = Weights(), Weights()
    if RANKS[who]():
        laid_out(model, layout)
    adam = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    optimizer = corro.DistributedOptimizer(adam, model.named_parameters(), op=op)
    alone = torch.optim.AdamW(reference.parameters(), lr=0.01, fused=True)
    for step in range(4):
        step_alone(reference, alone, [7] * corro.size())  # Of equal ones Adasum is that one.
        optimizer.zero_grad()
        model(7).backward()
        optimizer.step()
        assert_equal(model, reference)
        if step == 0:
            corro.broadcast_optimizer_state(optimizer)
        if step == 1:  # There is no state, or there is one in another order.
            adam.state.clear() if corro.rank() > 0 else None
            corro.broadcast_optimizer_state(optimizer)


@pytest.mark.parametrize("who", RANKS)
@pytest.mark.parametrize("passes", [1, 2])
def test_a_model_converted_after_wrapping(who: str, passes: int) -> None:
    model = nn.Conv2d(2, 2, 2)
    for param in model.parameters():
        nn.init.ones_(param)
    reference = copy.deepcopy(model)
    optimizer = corro.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        model.named_parameters(),
        backward_passes_per_step=passes,
    )
    alone = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    images = [
        torch.randn(3, 2, 3, 3, generator=torch.Generator().manual_seed(r))
        for r in range(corro.size())
    ]
    orders = [torch.channels_last, torch.contiguous_format, torch.channels_last]
    for order in orders:
        optimizer.zero_grad()
        alone.zero_grad()
        for one in range(passes):
            if RANKS[who]() and one == passes - 1:
                model.to(memory_format=order)
            model(images[corro.rank()]).square().mean().backward()
            (sum(reference(x).square().mean() for x in images) / corro.size()).backward()
        if RANKS[who]() and order is torch.channels_last:
            model.to(memory_format=torch.contiguous_format)
        optimizer.step()
        alone.step()
        assert_equal(model, reference)


def test_parameters_are_broadcast_by_index_not_by_place() -> None:
    torch.manual_seed(corro.rank())
    model = Weights()
    with torch.no_grad():
        for param in model.parameters():
            param.add_(corro.rank())
    if corro.rank() > 0:
        laid_out(model, channels_last)
    strides = [param.stride() for param in model.parameters()]
    corro.broadcast_parameters(model.state_dict())
    for ours, wanted in zip(model.parameters(), Weights().parameters(), strict=True):
        assert torch.equal(ours, wanted)
    assert [param.stride() for param in model.parameters()] == strides


# -- verbs ----------------------------------------------------------------------------------------


def tensor() -> torch.Tensor:
    """Of values that say where they are and whose; in another order on rank 1."""
    x = torch.arange(48.0).view(4, 3, 2, 2) + 100 * corro.rank()
    return channels_last(x) if corro.rank() % 2 else x


def of(rank: int) -> torch.Tensor:
    return torch.arange(48.0).view(4, 3, 2, 2) + 100 * rank


def test_verbs_of_tensors_in_different_orders() -> None:
    size, rank = corro.size(), corro.rank()
    total = sum(of(r) for r in range(size))
    assert torch.equal(corro.allreduce(tensor(), corro.Sum), total)
    assert torch.equal(corro.allreduce_(tensor(), corro.Sum), total)
    assert torch.equal(corro.allreduce_async(tensor(), corro.Sum, "named").wait(), total)
    out = channels_last(torch.zeros(4, 3, 2, 2)) if rank == 0 else torch.zeros(4, 3, 2, 2)
    assert torch.equal(corro.allreduce_async(tensor(), corro.Sum, out=out).wait(), total)
    assert torch.equal(out, total)
    for one in corro.grouped_allreduce([tensor(), tensor()], corro.Sum):
        assert torch.equal(one, total)
    assert torch.equal(corro.broadcast(tensor(), size - 1), of(size - 1))
    assert torch.equal(corro.broadcast_(tensor(), size - 1), of(size - 1))
    assert torch.equal(corro.allgather(tensor()), torch.cat([of(r) for r in range(size)]))
    rows = [0 if r == size - 1 else 4 // size for r in range(size)]
    rows[-1] = 4 - sum(rows)
    assert torch.equal(
        corro.reducescatter(tensor(), corro.Sum), torch.tensor_split(total, size)[rank]
    )
    got, _ = corro.alltoall(tensor(), rows)
    assert torch.equal(got, torch.cat([of(r).split(rows)[rank] for r in range(size)]))
    reduced = corro.reduce(tensor(), 0, corro.Sum)
    gathered = corro.gather(tensor(), 0)
    if rank == 0:
        assert torch.equal(reduced, total)
        assert torch.equal(gathered, torch.cat([of(r) for r in range(size)]))
    whole = channels_last(torch.cat([of(r) for r in range(size)])) if rank == 0 else None
    part = corro.scatter(whole, torch.empty_like(tensor()))
    assert torch.equal(part, of(rank))
    if size == 1:
        return
    sent = corro.send_async(tensor(), (rank + 1) % size)
    assert torch.equal(
        corro.recv(torch.empty_like(tensor()), (rank - 1) % size), of((rank - 1) % size)
    )
    sent.wait()


def test_numpys_verbs_of_arrays_in_different_orders() -> None:
    x = tensor().numpy()
    x = numpy.asfortranarray(x) if corro.rank() == 0 else x
    total = sum(of(r) for r in range(corro.size())).numpy()
    assert numpy.array_equal(cn.allreduce(x, corro.Sum), total)
    assert numpy.array_equal(cn.broadcast(x, 0), of(0).numpy())
    gathered = numpy.concatenate([of(r).numpy() for r in range(corro.size())])
    assert numpy.array_equal(cn.allgather(x), gathered)
    out = numpy.zeros(x.shape, x.dtype, order="F" if corro.rank() else "C")
    cn.allreduce(x, corro.Sum, out=out)
    assert numpy.array_equal(out, total)


# -- torch.distributed ----------------------------------------------------------------------------


def test_the_back_end_moves_tensors_in_different_orders() -> None:
    size, rank = corro.size(), corro.rank()
    total = sum(of(r) for r in range(size))
    x = tensor()
    dist.all_reduce(x)
    assert torch.equal(x, total)
    x = tensor()
    dist.broadcast(x, size - 1)
    assert torch.equal(x, of(size - 1))
    parts = [torch.empty_like(tensor()) for _ in range(size)]
    dist.all_gather(parts, tensor())
    for r, part in enumerate(parts):
        assert torch.equal(part, of(r))
    x = torch.empty_like(tensor())
    dist.reduce_scatter(x, [tensor() + r for r in range(size)])
    assert torch.equal(x, total + rank * size)
    x = tensor()
    dist.reduce(x, 0)
    assert rank > 0 or torch.equal(x, total)
    dist.scatter(x, [tensor() + r for r in range(size)] if rank == 0 else None)
    assert torch.equal(x, of(0) + rank)
    if size == 1:
        return
    sent = dist.isend(tensor(), (rank + 1) % size)
    x = torch.empty_like(tensor())
    dist.recv(x, (rank - 1) % size)
    assert torch.equal(x, of((rank - 1) % size))
    sent.wait()


def test_ddp_of_weights_in_one_other_order() -> None:
    model = nn.Conv2d(2, 2, 2).to(memory_format=torch.channels_last)
    ddp = nn.parallel.DistributedDataParallel(model)
    images = [
        torch.randn(3, 2, 3, 3, generator=torch.Generator().manual_seed(r))
        for r in range(corro.size())
    ]
    own = [torch.autograd.grad(model(x).square().sum(), model.weight)[0] for x in images]
    ddp(images[corro.rank()]).square().sum().backward()
    torch.testing.assert_close(model.weight.grad, sum(own) / corro.size())
