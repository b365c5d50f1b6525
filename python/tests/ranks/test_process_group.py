"""torch.distributed over the back end "corro", on every rank."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_version import NEW, needs_new

import corro.torch as corro
from corro.torch.works import CorroWork

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


def test_its_name_and_that_corro_works_beside_it() -> None:
    assert dist.get_backend() == "corro"
    assert (corro.rank(), corro.size()) == (rank(), size())
    assert corro.allreduce(torch.ones(1), corro.Sum).item() == size()


@pytest.mark.parametrize("background", [False, True])
def test_all_reduce(background: bool) -> None:
    for op, want in [
        (dist.ReduceOp.SUM, total()),
        (dist.ReduceOp.AVG, total() / size()),
        (dist.ReduceOp.MIN, 0),
        (dist.ReduceOp.MAX, size() - 1),
    ]:
        x = torch.full((3,), float(rank()))
        work = dist.all_reduce(x, op, async_op=background)
        if background:
            assert work.wait()
        assert x.tolist() == [want] * 3


def test_all_reduce_of_bits_complex_and_strided() -> None:
    x = torch.tensor([1 << rank(), 3])
    dist.all_reduce(x, dist.ReduceOp.BOR)
    assert x.tolist() == [(1 << size()) - 1, 3]
    z = torch.tensor([1 + 2j])
    dist.all_reduce(z)
    assert z.item() == (1 + 2j) * size()
    table = torch.arange(6.0).view(2, 3)
    dist.all_reduce(table[:, 1])
    assert table[:, 1].tolist() == [1.0 * size(), 4.0 * size()]


def negatives(values: list[float]) -> torch.Tensor:
    """Returns a tensor that torch only notes to be negated, in memory of its own."""
    parts = torch.complex(torch.zeros(len(values)), -torch.tensor(values))
    tensor = parts.conj().imag
    assert tensor.is_neg()
    return tensor


def test_negatives_that_torch_has_not_carried_out() -> None:
    n = size()  # Only as inputs: torch hands the back end copies, so marked outputs stay as is.
    into, out = torch.empty(n), torch.empty(1)
    dist.all_gather_into_tensor(into, negatives([3.0]))
    assert into.tolist() == [3.0] * n
    dist.reduce_scatter_tensor(out, negatives([3.0] * n))
    assert out.tolist() == [3.0 * n]
    dist.reduce_scatter(out, [negatives([4.0])] * n)
    assert out.tolist() == [4.0 * n]
    z = torch.tensor([1 + 2j])
    with pytest.raises(RuntimeError, match="conjugated"):  # torch itself refuses these.
        dist.all_reduce(z.conj())
    with pytest.raises(ValueError, match=r"complex|PRODUCT"):
        dist.all_reduce(z, dist.ReduceOp.PRODUCT)


@needs_new
def test_premultiplied_sum() -> None:
    x = torch.ones(2)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.25))
    assert x.tolist() == [0.25 * size()] * 2


def test_futures() -> None:
    x = torch.full((2,), float(rank()))
    work = dist.all_reduce(x, async_op=True)
    doubled = work.get_future().then(lambda future: 2 * future.value()[0])
    assert doubled.wait().tolist() == [2.0 * total()] * 2
    done = dist.all_reduce(x, async_op=True)
    done.wait()
    assert done.get_future().wait()[0] is not None


def test_a_work_has_one_future_however_often_it_is_asked_for() -> None:
    work = dist.all_reduce(torch.ones(3), async_op=True)
    for future in [work.get_future() for _ in range(3)]:
        assert future.wait()[0].tolist() == [size()] * 3
    work.wait()
    assert work.get_future().wait()[0].tolist() == [size()] * 3


def test_a_work_that_another_thread_concludes_meanwhile() -> None:
    class Done:
        def wait(self, timeout: float | None) -> None:
            pass

        def done(self) -> bool:
            return True

    class Raced(CorroWork):
        """Its native work is there when it is first looked at, and never again."""

        looks = 0

        @property
        def _native(self) -> Done | None:
            self.looks += 1
            return Done() if self.looks == 1 else None

        @_native.setter
        def _native(self, value: object) -> None:
            pass

    for call in (Raced.wait, Raced.is_completed):
        assert call(Raced(None, []))


def test_broadcast_reduce_and_scatter() -> None:
    last = size() - 1
    x = torch.full((2,), rank())
    dist.broadcast(x, last)
    assert x.tolist() == [last] * 2
    y = torch.full((2,), rank())
    dist.reduce(y, 0)
    if rank() == 0:
        assert y.tolist() == [total()] * 2
    z = torch.empty(2, dtype=torch.int64)
    dist.scatter(z, [torch.full((2,), r) for r in range(size())] if rank() == last else None, last)
    assert z.tolist() == [rank()] * 2


def test_gathers() -> None:
    parts = [torch.empty(2, dtype=torch.int16) for _ in range(size())]
    dist.all_gather(parts, torch.full((2,), rank(), dtype=torch.int16))
    assert [p.tolist() for p in parts] == [[r, r] for r in range(size())]
    into = torch.empty(size(), 3)
    dist.all_gather_into_tensor(into, torch.full((3,), float(rank())))
    assert into[:, 0].tolist() == list(range(size()))
    got = [torch.empty(1) for _ in range(size())] if rank() == 0 else None
    dist.gather(torch.tensor([float(rank())]), got, 0)
    assert got is None or [t.item() for t in got] == list(range(size()))


def test_all_gather_of_other_sizes() -> None:
    parts = [torch.empty(r + 1) for r in range(size())]
    dist.all_gather(parts, torch.full((rank() + 1,), float(rank())))
    assert [p.tolist() for p in parts] == [[float(r)] * (r + 1) for r in range(size())]


def test_reduce_scatters() -> None:
    out = torch.empty(2)
    dist.reduce_scatter(out, [torch.full((2,), float(r)) for r in range(size())])
    assert out.tolist() == [rank() * size()] * 2
    dist.reduce_scatter_tensor(out, torch.arange(2.0 * size()), op=dist.ReduceOp.AVG)
    assert out.tolist() == [2 * rank(), 2 * rank() + 1]


def test_all_to_alls() -> None:
    out = torch.empty(size())
    dist.all_to_all_single(out, torch.full((size(),), float(rank())))
    assert out.tolist() == list(range(size()))
    splits = [(rank() + other) % 3 for other in range(size())]
    out = torch.empty(sum(splits), 2)
    dist.all_to_all_single(out, torch.full((sum(splits), 2), float(rank())), splits, splits)
    assert out[:, 0].tolist() == [r for r in range(size()) for _ in range(splits[r])]
    outs = [torch.empty(r + 1) for r in range(size())]
    dist.all_to_all(outs, [torch.full((rank() + 1,), float(rank())) for _ in range(size())])
    assert [t.tolist() for t in outs] == [[float(r)] * (r + 1) for r in range(size())]


def test_send_and_recv() -> None:
    if size() == 1:
        return
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    sending = dist.isend(torch.tensor([rank()]), right, tag=3)
    got = torch.empty(1, dtype=torch.int64)
    dist.recv(got, left, tag=3)
    sending.wait()
    assert got.item() == left
    ops = [
        dist.P2POp(dist.isend, torch.tensor([10 * rank()]), right),
        dist.P2POp(dist.irecv, got, left),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert got.item() == 10 * left


def test_objects_and_barriers() -> None:
    every = [None] * size()
    dist.all_gather_object(every, {"rank": rank()})
    assert [o["rank"] for o in every] == list(range(size()))
    box = [f"from {rank()}"]
    dist.broadcast_object_list(box, src=size() - 1)
    assert box == [f"from {size() - 1}"]
    got = [None] * size() if rank() == 0 else None
    dist.gather_object(rank(), got)
    assert got is None or got == list(range(size()))
    dist.barrier()


def test_groups() -> None:
    evens = dist.new_group(list(range(0, size(), 2)))
    everyone = dist.new_group(list(range(size())))  # Some ranks have made more groups before.
    x = torch.ones(1)
    dist.all_reduce(x, group=everyone)
    assert x.item() == size()
    if rank() % 2 == 0:
        y = torch.tensor([float(rank())])
        dist.all_reduce(y, group=evens)
        assert y.item() == sum(range(0, size(), 2))
        dist.broadcast(y, dist.get_global_rank(evens, 0), group=evens)
    # corro's own groups beside them: not all ranks have made equally many.
    ours = corro.new_group(range(size()))
    assert corro.allreduce(torch.ones(1), corro.Sum, group=ours).item() == size()
    ends = sorted({0, size() - 1})
    pair = dist.new_group(ends)
    if rank() in ends:
        z = torch.tensor([1.0])
        dist.all_reduce(z, group=pair)
        assert z.item() == len(ends)
    dist.destroy_process_group(everyone)


def test_coalescing() -> None:
    xs = [torch.ones(n) for n in (1, 5, 0, 3)]
    with dist._coalescing_manager(device=torch.device("cpu")) as manager:
        for x in xs:
            dist.all_reduce(x)
    del manager
    assert [x.unique().tolist() for x in xs if x.numel()] == [[size()]] * 3
    outs = [torch.empty(size() * n) for n in (1, 2)]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as works:
        for out, n in zip(outs, (1, 2), strict=True):
            dist.all_gather_into_tensor(out, torch.full((n,), float(rank())))
    works.wait()
    assert outs[1].tolist() == [r for r in range(size()) for _ in range(2)]


@needs_new
def test_an_error_while_coalescing_ends_the_unit_and_not_the_group() -> None:
    if size() == 1:
        return
    group = dist.new_group(list(range(size())))
    collected = dist._coalescing_manager(group, torch.device("cpu"))
    with pytest.raises(corro.InvalidArgumentError, match="elements"), collected:
        dist.all_gather([torch.ones(3)] * size(), torch.ones(2), group=group)
    x = torch.full((2,), float(rank()))
    dist.broadcast(x, 0, group=group)
    assert x.tolist() == [0, 0], "it was collected, too, and never started"


def test_another_shape_is_an_error_that_names_both_sides() -> None:
    if size() == 1:
        return

    def disagree() -> None:
        dist.all_reduce(torch.zeros(2 + (rank() == 1)))
        dist.barrier()

    with pytest.raises(corro.MismatchError):
        disagree()
    dist.barrier()


@pytest.fixture(scope="module")
def alone() -> dist.ProcessGroup:
    """Only this rank: the root's own errors, without others that wait for it."""
    return [dist.new_group([other]) for other in range(size())][rank()]


def wrong_calls(group: dist.ProcessGroup, right: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Returns calls whose own tensors have 4 float32 for each rank, and the others are `right`."""
    n = dist.get_world_size(group)
    mine, one = torch.ones(4 * n), torch.ones(4)
    root = rank() if n == 1 else 0
    many = torch.cat([right] * n)
    return {
        "all_gather": lambda: dist.all_gather([right] * n, one, group=group),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(many, one, group=group),
        "gather": lambda: dist.gather(one, [right] * n, root, group=group),
        "scatter": lambda: dist.scatter(one, [right] * n, root, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter(one, [right] * n, group=group),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(one, many, group=group),
        "all_to_all": lambda: dist.all_to_all([right] * n, [one] * n, group=group),
        "all_to_all_single": lambda: dist.all_to_all_single(many, mine, group=group),
    }


COLLECTIVES = [
    "all_gather",
    "all_gather_into_tensor",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
]


@pytest.mark.parametrize("verb", COLLECTIVES)
@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_wrong_size_is_an_error(alone: dist.ProcessGroup, verb: str, count: int) -> None:
    for group in [alone] if verb in ("gather", "scatter") else [alone, dist.group.WORLD]:
        with pytest.raises(corro.InvalidArgumentError, match="elements"):
            wrong_calls(group, torch.ones(count))[verb]()
    dist.barrier()


@pytest.mark.parametrize("verb", COLLECTIVES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32])
def test_a_wrong_dtype_is_an_error(alone: dist.ProcessGroup, verb: str, dtype: torch.dtype) -> None:
    for group in [alone] if verb in ("gather", "scatter") else [alone, dist.group.WORLD]:
        with pytest.raises(ValueError, match="dtype"):  # torch itself finds some.
            wrong_calls(group, torch.ones(4, dtype=dtype))[verb]()
    dist.barrier()


def test_lists_of_a_wrong_length_or_of_many_dtypes_are_errors(alone: dist.ProcessGroup) -> None:
    one = torch.ones(4)
    for call in (
        lambda: dist.all_gather([one] * 2, one, group=alone),
        lambda: dist.gather(one, [one] * 2, rank(), group=alone),
        lambda: dist.scatter(one, [one] * 2, rank(), group=alone),
        lambda: dist.reduce_scatter(one, [one] * 2, group=alone),
        lambda: dist.all_to_all([one] * 2, [one], group=alone),
        lambda: dist.all_to_all([one], [one] * 2, group=alone),
    ):
        with pytest.raises(corro.InvalidArgumentError, match=r"has 2 tensors.* 1 "):
            call()
    if size() > 1:
        with pytest.raises(ValueError, match="dtype"):
            dist.all_to_all([one] * size(), [one] * (size() - 1) + [one.double()])
    with pytest.raises(corro.InvalidArgumentError, match="splits"):
        dist.all_to_all_single(one, one, [5, -1], [5, -1], group=alone)
    dist.barrier()


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(step)
    x = torch.randn(8 * size(), 8, generator=random)
    return x, x.sum(1, keepdim=True).sin()


def history(model: nn.Module, shared: bool, steps: int = 20) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(steps):
        x, y = batch(step)
        if shared:
            x, y = x[rank() :: size()], y[rank() :: size()]
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if shared:
            dist.all_reduce(mean, dist.ReduceOp.SUM)
            mean /= size()
        losses.append(mean.item())
    return losses


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True, "static_graph": True}])
def test_ddp_has_the_losses_of_one_process(options: dict[str, bool]) -> None:
    want = history(network(), shared=False)
    got = history(DistributedDataParallel(network(), **options), shared=True)
    assert got == pytest.approx(want, abs=1e-4)


def test_ddp_with_unused_parameters_and_no_sync() -> None:
    model = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 1)})

    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.parts["a" if rank() % 2 == 0 else "b"](x)

    ddp = DistributedDataParallel(Choice(), find_unused_parameters=True)
    ddp(torch.ones(1, 2)).sum().backward()
    even = (size() + 1) // 2
    assert model["a"].weight.grad.tolist() == [[pytest.approx(even / size())] * 2]
    with ddp.no_sync():
        ddp(torch.ones(1, 2)).sum().backward()
    ddp(torch.ones(1, 2)).sum().backward()


@needs_new
def test_fsdp2_has_the_losses_of_one_process() -> None:
    from torch.distributed.fsdp import fully_shard

    want = history(network(), shared=False)
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    assert history(model, shared=True) == pytest.approx(want, abs=1e-4)


@needs_new
def test_device_mesh_and_dtensor() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    shape = (2, size() // 2) if size() > 1 else (1, 1)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
    x = torch.ones(1) * rank()
    dist.all_reduce(x, group=mesh.get_group("tp"))
    row = rank() // shape[1]
    assert x.item() == sum(range(row * shape[1], (row + 1) * shape[1]))
    whole = torch.arange(4.0 * size()).view(-1, 4)
    sharded = distribute_tensor(whole, mesh["tp"], [Shard(0)])
    assert torch.equal(sharded.redistribute(placements=[Replicate()]).to_local(), whole)
    assert sharded.sum().full_tensor().item() == whole.sum().item()


@needs_new
def test_distributed_checkpoint_of_a_sharded_model(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    box = [str(tmp_path)]
    dist.broadcast_object_list(box)
    first = fully_shard(network())
    history(first, shared=True, steps=3)
    dcp.save({"model": get_model_state_dict(first)}, checkpoint_id=box[0])
    second = network()
    nn.init.zeros_(second[0].weight)
    second = fully_shard(second)
    state = {"model": get_model_state_dict(second)}
    dcp.load(state, checkpoint_id=box[0])
    set_model_state_dict(second, state["model"])
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a.to_local(), b.to_local())
    assert os.listdir(box[0])


@pytest.mark.skipif(NEW, reason="for torch before 2.15")
def test_what_an_old_torch_cannot_do_names_the_version() -> None:
    with pytest.raises(corro.UnimplementedError, match=r"needs torch 2\.15"):
        dist.all_reduce(torch.ones(1), dist._make_nccl_premul_sum(0.5))
    with pytest.raises(corro.UnimplementedError, match=r"FSDP2.* needs torch 2\.15"):
        _ = dist.group.WORLD.group_name


def test_a_timeout_that_is_no_number_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("soon", "-5", "0", "nan", "inf", "1e300"):
        monkeypatch.setenv("CORRO_TIMEOUT", wrong)
        message = f"CORRO_TIMEOUT={wrong}: expected a number of seconds above 0, at most"
        with pytest.raises(corro.InvalidArgumentError, match=message):
            dist.new_group(list(range(dist.get_world_size())))
    monkeypatch.delenv("CORRO_TIMEOUT")
    dist.barrier()


def test_tensors_are_let_go_of() -> None:
    """Older torch needs works to be kept alive; their tensors are not."""
    tensors = [torch.ones(8) for _ in range(40)]
    alive = [weakref.ref(tensor) for tensor in tensors]
    while tensors:
        dist.all_reduce(tensors.pop())
    assert sum(ref() is not None for ref in alive) < 20


def test_tensors_of_works_in_flight_are_let_go_of_later() -> None:
    tensors = [torch.ones(8) for _ in range(40)]
    alive = [weakref.ref(tensor) for tensor in tensors]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    del tensors, works, work
    for _ in range(40):
        dist.barrier()
    assert sum(ref() is not None for ref in alive) < 20


@pytest.mark.parametrize("stride", [1, 2])  # Of two is made a copy.
def test_tensors_of_works_that_failed_are_let_go_of(stride: int) -> None:
    if dist.get_world_size() == 1:
        pytest.skip("needs ranks that disagree")
    alive = []
    for _ in range(20):
        tensor = torch.ones(8 + stride * dist.get_rank())[::stride]
        alive.append(weakref.ref(tensor))
        with pytest.raises(corro.MismatchError):
            dist.all_reduce(tensor, async_op=True).wait()
    del tensor
    for _ in range(20):
        dist.barrier()
    assert sum(ref() is not None for ref in alive) < 4
