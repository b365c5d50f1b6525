"""What torch.distributed's works, futures and barriers promise, on every rank."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

import corro.torch as corro

pytestmark = pytest.mark.torch22


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    torch.set_num_threads(1)
    dist.init_process_group("corro")
    yield
    dist.barrier()
    dist.destroy_process_group()


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def total() -> int:
    return sum(range(size()))


def mine(count: int = 1) -> torch.Tensor:
    return torch.full((count,), float(rank()))


@pytest.mark.parametrize("background", [False, True])
def test_a_barrier_waits_for_earlier_collectives(background: bool) -> None:
    for _ in range(10):
        tensors = [mine(1 << 14) for _ in range(16)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        barrier = dist.barrier(async_op=background)
        if barrier is not None:
            barrier.wait()
        assert [tensor[-1].item() for tensor in tensors] == [total()] * 16
        for work in works:
            work.wait()


def test_a_barrier_waits_for_the_copy_to_a_tensor_that_is_not_contiguous() -> None:
    table = mine(6).view(2, 3)
    work = dist.all_reduce(table[:, 1], async_op=True)
    dist.barrier()
    assert table[:, 1].tolist() == [total()] * 2
    work.wait()
    assert table[:, 1].tolist() == [total()] * 2


def test_a_barrier_does_not_wait_for_a_receive() -> None:
    if size() == 1:
        return
    got = torch.empty(1)
    receive = dist.irecv(got, (rank() - 1) % size())
    dist.barrier()
    dist.send(mine(), (rank() + 1) % size())
    receive.wait()
    assert got.item() == (rank() - 1) % size()


def test_a_barrier_leaves_the_error_of_an_earlier_collective_to_its_work() -> None:
    if size() == 1:
        return
    work = dist.all_reduce(torch.ones(2 + rank()), async_op=True)
    dist.barrier()
    with pytest.raises(corro.MismatchError):
        work.wait()


@pytest.mark.filterwarnings("ignore:.*all_reduce_coalesced")
@pytest.mark.parametrize("background", [False, True])
def test_a_tensor_that_is_given_twice_is_reduced_twice(background: bool) -> None:
    for count in (1, 1 << 16):
        tensor = torch.ones(count)
        work = dist.all_reduce_coalesced([tensor, tensor], async_op=background)
        if work is not None:
            work.wait()
        assert tensor.unique().tolist() == [size() ** 2]


@pytest.mark.parametrize("background", [False, True])
def test_coalesced_operations_on_one_memory_run_in_order(background: bool) -> None:
    tensor, strided = torch.ones(60_000), torch.ones(30_000, 2)
    other = torch.ones(20_000)
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=background) as works:
        dist.all_reduce(tensor[:40_000])
        dist.all_reduce(tensor[20_000:])
        dist.all_reduce(strided[:, 0])
        # One rank alone has reason to wait in between.
        dist.all_reduce(strided[:, 0] if rank() == 0 else other.repeat(2)[:30_000])
    if background:
        works.wait()
    assert tensor[:20_000].unique().tolist() == [size()]
    assert tensor[20_000:40_000].unique().tolist() == [size() ** 2]
    assert tensor[40_000:].unique().tolist() == [size()]
    assert strided[:, 1].unique().tolist() == [1]
    if rank() == 0:
        assert strided[:, 0].unique().tolist() == [2 * size() - 1]
