"""Tensors of a GPU, on every rank; ranks may share one. Results are those of the processor."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_version import needs_new
from training import batch, mine, network, sgd

import corro.torch as corro

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
    pytest.mark.usefixtures("job"),
]

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    """Ranks take turns at the GPUs of the host."""
    torch.set_num_threads(1)
    with torch.cuda.device(corro.rank() % torch.cuda.device_count()):
        yield


def sample(dtype: torch.dtype, rows: int = 12) -> Tensor:
    """Returns what differs on each rank: small whole numbers, whose sums are exact."""
    return (torch.arange(rows * 3).view(rows, 3) % 5 + corro.rank()).to(dtype)


VERBS: dict[str, Callable[[Tensor], object]] = {
    "allreduce": corro.allreduce,
    "sum": lambda x: corro.allreduce(x, corro.Sum),
    "max": lambda x: corro.allreduce(x, corro.Max),
    "out": lambda x: corro.allreduce(x, corro.Sum, out=torch.zeros_like(x)),
    "in place": lambda x: corro.allreduce_(x.clone(), corro.Sum),
    "started": lambda x: corro.synchronize(corro.allreduce_async(x, corro.Sum)),
    "grouped": lambda x: corro.grouped_allreduce([x, x + 1], corro.Sum),
    "strided": lambda x: corro.allreduce(x.t()[1:], corro.Sum),
    "allgather": lambda x: corro.allgather(x[: corro.rank() + 1]),
    "broadcast": lambda x: corro.broadcast(x, corro.size() - 1),
    "reducescatter": lambda x: corro.reducescatter(x, corro.Sum),
    "alltoall": corro.alltoall,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("verb", VERBS)
def test_verbs(verb: str, dtype: torch.dtype) -> None:
    x = sample(dtype)
    want, got = VERBS[verb](x), VERBS[verb](x.cuda())
    for one, other in zip(flat(want), flat(got), strict=True):
        assert other.is_cuda
        assert torch.equal(one, other.cpu())


def flat(result: object) -> list[Tensor]:
    """Returns the tensors in what a verb returns."""
    if isinstance(result, Tensor):
        return [result]
    assert isinstance(result, list | tuple)
    return [x for x in result if isinstance(x, Tensor)]


def negatives() -> Tensor:
    """Returns a strided tensor that torch only notes to be negated."""
    x = torch.complex(torch.zeros(4), torch.arange(4.0)).cuda().conj().imag
    assert x.is_neg()
    return x


def test_negatives_that_torch_has_not_carried_out() -> None:
    want = torch.arange(4.0) * -corro.size()
    assert torch.equal(corro.allreduce(negatives(), corro.Sum).cpu(), want)
    x = negatives()
    corro.allreduce_(x, corro.Sum)
    assert torch.equal(x.cpu(), want)
    assert torch.equal(corro.broadcast(negatives()).cpu(), torch.arange(4.0) * -1)


def busy() -> None:
    """Keeps the current stream from what comes next for some 50 ms."""
    torch.cuda._sleep(100_000_000)


@pytest.mark.parametrize("count", [1, 3_000_000])
def test_a_verb_reads_what_its_stream_will_have_written(count: int) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(count, device="cuda")
        busy()
        x += 1
        handles = [corro.allreduce_async(x, corro.Sum) for _ in range(3)]
        results = [corro.synchronize(handle) for handle in handles]
        total = sum(results)  # On the stream that waited.
    stream.synchronize()
    assert torch.equal(total.cpu(), torch.full((count,), 3.0 * corro.size()))


def test_a_result_waits_for_what_its_stream_still_reads() -> None:
    x, y = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    busy()
    y.copy_(x)
    corro.allreduce_(x, corro.Sum)
    assert torch.equal(y.cpu(), torch.ones(1000))
    assert torch.equal(x.cpu(), torch.full((1000,), float(corro.size())))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> list[Tensor]:
    """Returns the parameters after 10 steps of two backward passes each."""
    for step in range(10):
        optimizer.zero_grad()
        for part in range(2):
            x, y = (mine(t).to(device) for t in batch(2 * step + part))
            nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return [param.detach().cpu() for param in model.parameters()]


OPTIONS = {
    "plain": {},
    "each alone": {"bucket_bytes": 0},
    "half": {"compression": corro.Compression.fp16},
    "delta": {"op": corro.Adasum},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_an_optimizer(options: str) -> None:
    result = []
    for device in ("cpu", "cuda"):
        model = network().to(device)
        optimizer = corro.DistributedOptimizer(
            sgd(model), model.named_parameters(), backward_passes_per_step=2, **OPTIONS[options]
        )
        result.append(train(model, optimizer, device))
    for want, got in zip(*result, strict=True):
        torch.testing.assert_close(got, want, rtol=0.0, atol=2e-3)
        assert torch.equal(corro.broadcast(got), got)


def test_sync_batch_norm() -> None:
    layers = [corro.SyncBatchNorm(3), corro.SyncBatchNorm(3).cuda()]
    outputs = []
    for layer in layers:
        x = sample(torch.float32).to(layer.weight.device).requires_grad_()
        layer(x).square().sum().backward()
        outputs.append([layer.running_var.cpu(), layer.weight.grad.cpu(), x.grad.cpu()])
    for want, got in zip(*outputs, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_state_is_broadcast() -> None:
    model = network().cuda()
    with torch.no_grad():
        for param in model.parameters():
            param.add_(corro.rank())
    adam = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 6, device="cuda")).sum().backward()
    adam.step()
    corro.broadcast_parameters(model.state_dict(), 0)
    corro.broadcast_optimizer_state(adam, 0)
    states = [adam.state[param]["exp_avg"] for param in model.parameters()]
    for tensor in [*model.parameters(), *states]:
        assert tensor.is_cuda
        assert torch.equal(corro.broadcast(tensor.detach()), tensor)


@pytest.mark.usefixtures("process_group")
class TestBackEnd:
    """torch.distributed over the back end "corro"."""

    def test_collectives(self) -> None:
        x = sample(torch.float32, 4 * corro.size())
        for device in ("cpu", "cuda"):
            here = x.to(device)
            total = here.clone()
            dist.all_reduce(total)
            part = torch.empty_like(here[:4])
            dist.reduce_scatter_tensor(part, here)
            assert torch.equal(part, total[4 * corro.rank() :][:4])
            whole = torch.empty_like(here)
            dist.all_gather_into_tensor(whole, part)
            assert torch.equal(whole, total)
            there, back = torch.empty_like(here), torch.empty_like(here)
            dist.all_to_all_single(there, here)
            dist.all_to_all_single(back, there)
            assert torch.equal(back, here)

    def test_negatives_that_torch_has_not_carried_out(self) -> None:
        whole = torch.empty(4 * corro.size(), device="cuda")
        dist.all_gather_into_tensor(whole, negatives())
        assert torch.equal(whole.cpu(), -torch.arange(4.0).repeat(corro.size()))

    def test_send_and_recv(self) -> None:
        if corro.size() == 1:
            pytest.skip("there is nobody else")
        x = torch.full((5,), 7.0, device="cuda") * (corro.rank() == 0)
        if corro.rank() == 0:
            dist.send(x, 1)
        elif corro.rank() == 1:
            dist.recv(x, 0)
            assert x.tolist() == [7] * 5

    def test_a_work_and_its_future_are_in_order_with_streams(self) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.zeros(2_000_000, device="cuda")
            busy()
            x += 1
            work = dist.all_reduce(x, async_op=True)
            double = work.get_future().then(lambda future: future.value()[0] * 2)
            result = double.wait() + 1
        stream.synchronize()
        work.wait()
        assert torch.equal(result.cpu(), torch.full_like(x, 2 * corro.size() + 1).cpu())

    @pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}], ids=str)
    def test_ddp(self, options: dict[str, bool]) -> None:
        result = []
        for device in ("cpu", "cuda"):
            model = network().to(device)
            together = DistributedDataParallel(copy.deepcopy(model), **options)
            result.append(train(together, sgd(together), device))
        for want, got in zip(*result, strict=True):
            torch.testing.assert_close(got, want, rtol=0.0, atol=1e-4)

    @needs_new
    def test_fsdp2(self) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        alone = network()
        want = train(alone, corro.DistributedOptimizer(sgd(alone), alone.named_parameters()), "cpu")
        model = network().cuda()
        mesh = init_device_mesh("cuda", (corro.size(),))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        train(model, sgd(model), "cuda")
        for full, param in zip(want, model.parameters(), strict=True):
            torch.testing.assert_close(param.full_tensor().cpu(), full, rtol=0.0, atol=1e-4)
