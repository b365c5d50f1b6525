"""hvd.Adasum, on every rank; the first two are Horovod's tests for GPUs, on processors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from horovod.torch import mpi_ops

pytestmark = pytest.mark.usefixtures("job")

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def close(got: torch.Tensor, want: torch.Tensor) -> bool:
    """The error is below 100 units in the last place of the type, as Horovod's tests have it."""
    error = torch.linalg.vector_norm(got.double() - want.double())
    return bool(error < 100 * torch.finfo(got.dtype).eps * torch.linalg.vector_norm(want.double()))


def sizes() -> list[int]:
    n = hvd.size()
    return [20 * n - 13, 2 * n + 1, n + 2, 2**19]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_orthogonal_vectors_are_added(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(2)
    columns = [
        torch.linalg.qr(torch.randn(n, hvd.size(), generator=random, dtype=torch.float64))[0]
        for n in sizes()
    ]
    handles = [
        hvd.allreduce_async(q[:, hvd.rank()].to(dtype).contiguous(), op=hvd.Adasum) for q in columns
    ]
    for q, handle in zip(columns, handles, strict=True):
        assert close(hvd.synchronize(handle), q.to(dtype).double().sum(1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_parallel_vectors_are_averaged(dtype: torch.dtype) -> None:
    """By pairs, which is the mean of all only for powers of two."""
    if hvd.size() & (hvd.size() - 1):
        pytest.skip("there is no pair for each rank")
    random = torch.Generator().manual_seed(2)
    for n in sizes():
        a = torch.randn(n, 1, generator=random, dtype=torch.float64)
        b = torch.randn(1, hvd.size(), generator=random, dtype=torch.float64)
        all_ranks = (a @ b).to(dtype)
        got = hvd.allreduce(all_ranks[:, hvd.rank()].contiguous(), op=hvd.Adasum)
        assert close(got, all_ranks.double().mean(1))


def test_forms() -> None:
    x = torch.full((4,), 2.0)
    for result in (
        hvd.allreduce(x, op=hvd.Adasum),
        hvd.allreduce_(x.clone(), op=hvd.Adasum),
        hvd.synchronize(hvd.allreduce_async_(x.clone(), op=hvd.Adasum)),
        hvd.grouped_allreduce([x, x], op=hvd.Adasum)[1],
        hvd.allreduce(x, op=hvd.Adasum, compression=hvd.Compression.fp16),
        hvd.allreduce(x, op=mpi_ops.Adasum, prescale_factor=2.0, postscale_factor=0.5),
    ):
        assert torch.equal(result, x), "equal vectors: their mean"
    assert not hvd.mpi_enabled()


def test_in_a_process_set() -> None:
    if hvd.size() == 1:
        pytest.skip("a set of one rank would be the world")
    some = hvd.add_process_set([hvd.size() - 1])
    if some.included():
        x = torch.randn(5)
        assert torch.equal(hvd.allreduce(x, op=hvd.Adasum, process_set=some), x)
    hvd.remove_process_set(some)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="adasum"):
        hvd.allreduce(torch.ones(2, dtype=torch.int32), op=hvd.Adasum)
    with pytest.raises(hvd.HorovodInternalError):
        hvd.reducescatter(torch.ones(hvd.size()), op=hvd.Adasum)


def test_joined_ranks_add_nothing() -> None:
    for batch in range(hvd.rank() + 1):
        got = hvd.allreduce(torch.full((3,), 4.0), op=hvd.Adasum, name=f"batch {batch}")
        assert torch.equal(got, torch.full((3,), 4.0))
    hvd.join()


def model_and_optimizer(**arguments: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    named = model.named_parameters()
    return model, hvd.DistributedOptimizer(plain, named, op=hvd.Adasum, **arguments)


@pytest.mark.parametrize("passes", [1, 2])
def test_the_optimizer_steps_as_one_rank_where_all_have_the_same_samples(passes: int) -> None:
    torch.manual_seed(1)
    alone = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    single = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    together, optimizer = model_and_optimizer(backward_passes_per_step=passes)
    assert isinstance(optimizer, torch.optim.SGD)
    samples = torch.randn(5, 4, generator=torch.Generator().manual_seed(7))
    for _ in range(3):
        for model, one in ((alone, single), (together, optimizer)):
            one.zero_grad()
            for _ in range(passes):
                model(samples).square().mean().backward()
            one.step()
    for ours, wanted in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, wanted)


def test_what_the_optimizer_cannot() -> None:
    with pytest.raises(ValueError, match="gradient_predivide_factor not supported"):
        model_and_optimizer(gradient_predivide_factor=2.0)
    _, optimizer = model_and_optimizer()
    if hvd.size() == 1:  # It is the plain one.
        with optimizer.skip_synchronize():
            return
    with pytest.raises(AssertionError, match="skip_synchronize"), optimizer.skip_synchronize():
        pass
