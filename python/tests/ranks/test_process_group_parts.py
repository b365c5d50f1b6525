"""Parts of torch.distributed that few programs use, over the back end "corro", on every rank."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_version import NEW, needs_new

import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("process_group")]


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


@pytest.mark.filterwarnings("ignore:.*all_gather_coalesced")
@pytest.mark.parametrize("background", [False, True])
def test_all_gather_coalesced(background: bool) -> None:
    inputs = [torch.full((n,), float(10 * rank() + n)) for n in (1, 3)]
    outputs = [[torch.empty(1), torch.empty(3)] for _ in range(size())]
    future = dist.all_gather_coalesced(outputs, inputs, async_op=background)
    if background:
        future.wait()
    for r, (one, three) in enumerate(outputs):
        assert (one.tolist(), three.tolist()) == ([10.0 * r + 1], [10.0 * r + 3] * 3)


def test_all_gather_coalesced_of_a_wrong_length_is_an_error() -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu")) if NEW else dist.group.WORLD
    with pytest.raises(ValueError, match="1 outputs of a rank for 2 inputs"):
        backend.allgather_coalesced([[torch.empty(1)]] * size(), [torch.ones(1)] * 2)


@pytest.mark.parametrize("dense", [(), (2,)])
@pytest.mark.parametrize("background", [False, True])
def test_all_reduce_of_sparse_tensors(dense: tuple[int, ...], background: bool) -> None:
    """Rank r has r + 1 values, and rank 0 has one place twice."""
    places = torch.tensor([[0, 0]]) if rank() == 0 else torch.arange(rank() + 1).view(1, -1)
    values = torch.ones(places.size(1), *dense)
    tensor = torch.sparse_coo_tensor(places, values, (size() + 1, *dense))
    want = torch.zeros(size() + 1, *dense)
    want[0] = 2
    for r in range(1, size()):
        want[: r + 1] += 1
    work = dist.all_reduce(tensor, async_op=background)
    if work is not None:
        work.wait()
    assert torch.equal(tensor.to_dense(), want)


def test_sparse_tensors_that_cannot_be_summed_up_are_errors() -> None:
    tensor = torch.eye(3).to_sparse()
    with pytest.raises(corro.UnimplementedError, match="only be summed up"):
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
    if size() > 1:
        other = torch.sparse_coo_tensor(
            torch.zeros(1 + rank() % 2, 1), [1.0], (1,) * (1 + rank() % 2)
        )
        with pytest.raises(corro.MismatchError, match="sparse dims"):
            dist.all_reduce(other)
    dist.barrier()


def test_ddp_with_sparse_gradients() -> None:
    torch.manual_seed(5)
    embedding = nn.Embedding(8, 4, sparse=True)
    before = embedding.weight.detach().clone()
    model = DistributedDataParallel(embedding)
    model(torch.tensor([rank(), 7])).sum().backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    want = before.clone()
    want[: size()] -= 1 / size()
    want[7] -= 1
    assert torch.allclose(embedding.weight, want)


@needs_new
def test_monitored_barrier() -> None:
    for _ in range(3):
        dist.monitored_barrier(timeout=timedelta(seconds=60))
        dist.monitored_barrier(timeout=timedelta(seconds=60), wait_all_ranks=True)


@needs_new
@pytest.mark.parametrize("wait_all_ranks", [False, True])
def test_monitored_barrier_names_the_first_or_all_that_do_not_come(wait_all_ranks: bool) -> None:
    if size() == 1:
        return
    if rank() == 0:
        others = ", ".join(map(str, range(1, size())))
        want = f"Ranks {others}" if wait_all_ranks and size() > 2 else "Rank 1"
        text = f"^{want} failed to pass monitoredBarrier in 100 ms"
        with pytest.raises(corro.TimeoutError, match=text) as caught:
            dist.monitored_barrier(None, timedelta(seconds=0.1), wait_all_ranks)
        assert isinstance(caught.value, RuntimeError)
        assert caught.value.rank == 1
    dist.barrier()
    if rank() != 0:  # Late, they learn what rank 0 has decided.
        with pytest.raises(RuntimeError, match=f"Rank {rank()} successfully reached"):
            dist.monitored_barrier(None, timedelta(seconds=60), wait_all_ranks)
    dist.monitored_barrier(None, timedelta(seconds=60))


@needs_new
def test_monitored_barrier_without_time_fails_at_once() -> None:
    with pytest.raises(RuntimeError, match=f"Rank {rank()} timed out in monitoredBarrier"):
        dist.monitored_barrier(None, timedelta(seconds=0))
    dist.monitored_barrier(None, timedelta(seconds=60))


@needs_new
def test_what_is_not_supported_is_said_and_not_asked_for_ever() -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_coalescing
    for name in dir(backend):
        if name.startswith("supports_") and isinstance(getattr(type(backend), name), property):
            assert getattr(backend, name) is (name == "supports_coalescing")
    with pytest.raises(RuntimeError, match="does not support splitting"):
        dist.split_group(split_ranks=[list(range(size()))])


@needs_new
def test_debug_level_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    level = dist.get_debug_level()
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    dist.set_debug_level_from_env()
    try:
        group = dist.new_group(list(range(size())))
    finally:
        dist.set_debug_level(level)
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    assert x.tolist() == [size()] * 3
    dist.all_reduce(x, group=group, async_op=True).wait()
    dist.barrier(group=group)
    if size() > 1:
        got = torch.empty(1)
        ops = [
            dist.P2POp(dist.isend, torch.ones(1), (rank() + 1) % size(), group),
            dist.P2POp(dist.irecv, got, (rank() - 1) % size(), group),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert got.item() == 1
        with pytest.raises(RuntimeError, match="mismatch"):
            dist.all_reduce(torch.ones(3 + rank()), group=group)
    dist.destroy_process_group(group)


@needs_new
@pytest.mark.parametrize("background", [False, True])
def test_operations_are_events_of_the_profiler(background: bool) -> None:
    parts = [torch.empty(2) for _ in range(size())]
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        for work in (
            dist.all_reduce(torch.ones(3, 4), async_op=background),
            dist.all_gather(parts, torch.ones(2), async_op=background),
        ):
            if work is not None:
                work.wait()
    events = {e.name: e for e in profile.function_events if e.name.startswith("corro:")}
    assert events["corro:all_reduce"].input_shapes == [[3, 4]]
    assert events["corro:all_gather"].input_shapes == [[2]]
    assert all(event.is_async for event in events.values())


@needs_new
def test_the_event_of_a_receive_without_a_source_ends_where_the_work_does() -> None:
    """The profiler calls it asynchronous, whoever lets go of the work, and when."""
    if size() == 1:
        pytest.skip("one rank has nobody to receive from")
    to, got = (rank() + 1) % size(), torch.empty(3)
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        works = []
        for _ in range(4):
            works += [dist.isend(torch.ones(3), to, tag=9), dist.irecv(got, tag=9)]
            works[-1].wait()
        works.clear()
    events = [e for e in profile.function_events if e.name == "corro:recvAnySource"]
    assert len(events) == 4
    assert all(event.is_async and event.input_shapes == [[3]] for event in events)


def test_receives_without_a_source() -> None:
    """Rank 0 gets three messages of each other rank, in two ways, and then one by name."""
    others = list(range(1, size()))
    if rank() != 0:
        for _ in range(4):
            dist.send(torch.full((5,), rank()), 0, tag=7)
        return
    got = []
    for turn in range(3 * len(others)):
        tensor = torch.empty(5, dtype=torch.int64)
        if turn % 2 == 0:
            source = dist.recv(tensor, tag=7)
        else:
            work = dist.irecv(tensor, tag=7)
            work.wait()
            assert work.is_completed()
            source = work._source_rank()
        assert tensor.tolist() == [source] * 5
        got.append(source)
    for source in others:
        if got.count(source) < 4:
            dist.recv(tensor, source, tag=7)
            assert tensor.tolist() == [source] * 5
            got.append(source)
    while len(got) < 4 * len(others):
        got.append(dist.recv(tensor, tag=7))
    assert sorted(got) == sorted(others * 4)
