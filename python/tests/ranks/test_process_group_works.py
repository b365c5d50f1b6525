"""What torch.distributed's works, futures and barriers promise, on every rank."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook, quantization_hooks
from torch.nn.parallel import DistributedDataParallel
from torch_version import needs_new

import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("process_group")]


def completion_threads() -> int:
    return sum(thread.name == "corro-completions" for thread in threading.enumerate())


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


def test_a_work_says_whether_it_is_completed() -> None:
    tensor = mine(1 << 12)
    work = dist.all_reduce(tensor, async_op=True)
    end = time.monotonic() + 60
    while not work.is_completed() and time.monotonic() < end:
        time.sleep(0.001)
    assert work.is_completed()
    assert work.wait()
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert work.result()[0].data_ptr() == tensor.data_ptr()


def test_a_work_that_failed_says_so() -> None:
    if size() == 1:
        return
    work = dist.all_reduce(torch.ones(2 + rank()), async_op=True)
    with pytest.raises(corro.MismatchError):
        work.wait()
    assert work.is_completed()
    assert not work.is_success()
    assert isinstance(work.exception(), corro.MismatchError)
    dist.barrier()


@needs_new
def test_works_of_another_back_end_answer_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    # torch brings its own again.
    monkeypatch.delitem(dist.Backend._plugins, "GLOO", raising=False)
    own = dist.ProcessGroup.BackendType.GLOO
    monkeypatch.setitem(dist.Backend.backend_type_map, "gloo", own)
    gloo = dist.new_group(backend="gloo")
    work = dist.all_reduce(torch.ones(3), group=gloo, async_op=True)
    work.wait()
    assert work.is_completed()
    assert [tensor.tolist() for tensor in work.result()] == [[size()] * 3]
    with pytest.raises(RuntimeError, match="sourceRank"):
        work.source_rank()
    dist.destroy_process_group(gloo)


Future = torch.futures.Future


def reduced(tensor: torch.Tensor) -> Future:
    return dist.all_reduce(tensor, async_op=True).get_future()


def wait_for_work() -> float:
    tensor = mine()
    dist.all_reduce(tensor, async_op=True).wait()
    return tensor.item()


def reduce_now() -> float:
    tensor = mine()
    dist.all_reduce(tensor)
    return tensor.item()


def wait_for_future() -> float:
    return reduced(mine()).wait()[0].item()


@pytest.mark.parametrize("wait", [wait_for_work, reduce_now, wait_for_future])
def test_a_callback_may_wait_for_a_collective(wait: Callable[[], float]) -> None:
    for _ in range(20):
        assert reduced(mine()).then(lambda _: wait()).wait() == total()
    end = time.monotonic() + 60
    while completion_threads() > 2 and time.monotonic() < end:
        time.sleep(0.001)
    assert completion_threads() <= 2


def test_callbacks_may_wait_inside_of_callbacks() -> None:
    def nested(depth: int) -> float:
        if depth == 0:
            return reduced(mine()).wait()[0].item()
        return reduced(mine()).then(lambda _: nested(depth - 1)).wait()

    assert nested(8) == total()


def test_a_callback_may_wait_for_a_future_that_was_made_elsewhere() -> None:
    both = threading.Event()
    first, second = reduced(mine(1 << 12)), reduced(mine(1 << 12))
    told = second.then(lambda _: both.set())
    waited = first.then(lambda _: both.wait(60))
    assert waited.wait()
    told.wait()


@pytest.mark.parametrize("hook", ["powerSGD", pytest.param("quantization", marks=needs_new)])
def test_ddp_hooks_that_wait_in_callbacks(hook: str) -> None:
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    if hook == "powerSGD":
        state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    else:
        model.register_comm_hook(dist.group.WORLD, quantization_hooks.quantization_perchannel_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        x = torch.randn(16, 64, generator=torch.Generator().manual_seed(size() * step + rank()))
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    for parameter in model.parameters():
        low, high = parameter.detach().clone(), parameter.detach().clone()
        dist.all_reduce(low, dist.ReduceOp.MIN)
        dist.all_reduce(high, dist.ReduceOp.MAX)
        assert torch.equal(low, high)
