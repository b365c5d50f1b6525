"""What corro makes for itself is the host's, whatever torch's default device is, on every rank.

The default device is "meta" here, whose tensors have no memory; a program that trains on a GPU may
have set "cuda".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from training import network

import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]


@pytest.fixture(autouse=True)
def meta() -> Iterator[None]:
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device="cpu")


def sparse(rows: int) -> torch.Tensor:
    with torch.device("cpu"):
        return torch.eye(rows).to_sparse()


# To what is called, and what comes out on each of n ranks.
CALLS: dict[str, tuple[Callable[[], object], Callable[[int], object]]] = {
    "allreduce": (lambda: corro.allreduce(ones(3), corro.Sum), lambda n: [n] * 3),
    "strided": (lambda: corro.allreduce(ones(3, 2).t(), corro.Sum), lambda n: [[n] * 3] * 2),
    "compressed": (
        lambda: corro.allreduce(ones(3), compression=corro.Compression.bf16),
        lambda _: [1] * 3,
    ),
    "allgather": (
        lambda: corro.allgather(ones(1 + corro.rank())),
        lambda n: [1] * (n * (n + 1) // 2),
    ),
    "broadcast": (lambda: corro.broadcast(ones(3)), lambda _: [1] * 3),
    "reducescatter": (lambda: corro.reducescatter(ones(corro.size())), lambda _: [1]),
    "alltoall": (lambda: corro.alltoall(ones(corro.size()))[0], lambda n: [1] * n),
    "sparse": (
        lambda: corro.sparse_allreduce(sparse(2)).to_dense(),
        lambda _: [[1, 0], [0, 1]],
    ),
    "objects": (lambda: corro.allgather_object({"a": [1]}), lambda n: [{"a": [1]}] * n),
    "an object": (lambda: corro.broadcast_object({"a": [1]}), lambda _: {"a": [1]}),
    "empty": (lambda: corro.empty((2, 3)), lambda _: [[0] * 3] * 2),
}


@pytest.mark.parametrize("call", CALLS)
def test_verbs(call: str) -> None:
    run, want = CALLS[call]
    got = run()
    assert (got.tolist() if isinstance(got, torch.Tensor) else got) == want(corro.size())


@pytest.mark.parametrize("is_sparse", [False, True])
def test_an_optimizer(is_sparse: bool) -> None:
    with torch.device("cpu"):
        model = nn.Sequential(nn.Embedding(8, 6, sparse=is_sparse), network())
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.0 if is_sparse else 0.9)
    corro.broadcast_parameters(model.state_dict(), 0)
    optimizer = corro.DistributedOptimizer(inner, model.named_parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.full((3,), corro.rank(), device="cpu")).sum().backward()
        optimizer.step(lambda: 1.5)
    corro.broadcast_optimizer_state(optimizer, 0)
    for param in model.parameters():
        assert torch.equal(corro.broadcast(param.detach()), param)


def test_sync_batch_norm() -> None:
    layer = corro.SyncBatchNorm(3, device="cpu")
    x = ones(2, 3).requires_grad_()
    layer(x).sum().backward()
    assert x.grad.tolist() == [[0] * 3] * 2


@pytest.mark.usefixtures("process_group")
def test_the_back_end() -> None:
    total = ones(2, 3)
    dist.all_reduce(total)
    dist.all_reduce(total[:, 1])  # Strided.
    gathered = [ones(3) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, total[1])
    eye = sparse(3)
    dist.all_reduce(eye)
    n = dist.get_world_size()
    assert gathered[-1].tolist() == [n, n * n, n]
    assert eye.to_dense().sum().item() == 3 * n
