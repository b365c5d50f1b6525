"""Horovod's interface for torch, on every rank: what docs/migrating-from-horovod.md promises."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import horovod.torch as hvd

pytestmark = pytest.mark.usefixtures("job")

DTYPES = [torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]
MORE = [torch.uint8, torch.int8, torch.int16, torch.bfloat16]  # Horovod has none of these.


def mine(dtype: torch.dtype = torch.float32, *shape: int) -> torch.Tensor:
    return torch.full(shape or (3, 2), hvd.rank() + 1, dtype=dtype)


def total() -> int:
    return sum(range(1, hvd.size() + 1))


# -- basics ---------------------------------------------------------------------------------------


def test_ranks_are_those_of_the_job() -> None:
    assert (hvd.rank(), hvd.size()) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), hvd.size())
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.is_homogeneous()


def test_init_may_follow_shutdown_and_itself() -> None:
    before = hvd.rank()
    hvd.init()
    for _ in range(2):
        hvd.shutdown()
        assert not hvd.is_initialized()
        hvd.init()
        assert hvd.rank() == before


@pytest.mark.parametrize(
    "call", [hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.barrier, hvd.cross_size]
)
def test_before_init_there_is_no_rank(call: Callable[[], Any]) -> None:
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(ValueError, match=r"^Horovod has not been initialized; use hvd.init\(\)\."):
        call()
    with pytest.raises(ValueError, match="not been initialized"):
        hvd.allreduce(torch.ones(1))
    hvd.init()


def test_what_is_built() -> None:
    assert (hvd.gloo_built(), hvd.gloo_enabled()) == (True, True)
    assert hvd.nccl_built() == 0
    for built in (hvd.mpi_built, hvd.mpi_enabled, hvd.ddl_built, hvd.ccl_built, hvd.cuda_built):
        assert built() is False


# -- allreduce ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, *MORE], ids=str)
def test_allreduce(dtype: torch.dtype) -> None:
    x = mine(dtype)
    assert torch.equal(hvd.allreduce(x, op=hvd.Sum), torch.full_like(x, total()))
    assert torch.equal(hvd.allreduce(x, op=hvd.Min), torch.ones_like(x))
    assert torch.equal(hvd.allreduce(x, op=hvd.Max), torch.full_like(x, hvd.size()))
    assert torch.equal(x, mine(dtype)), "what comes in is left alone"


def test_the_average_of_integers_is_cut_off() -> None:
    x = torch.tensor([3, -3]) * (hvd.rank() + 1)
    average = 3 * total() // hvd.size()
    assert hvd.allreduce(x).tolist() == [average, -average]
    assert torch.allclose(hvd.allreduce(mine()), torch.tensor(total() / hvd.size()))


def test_factors() -> None:
    x = mine(torch.int32)
    scaled = hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5)
    assert torch.equal(scaled, torch.full_like(x, total()))


def test_average_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="average"):
        assert torch.equal(hvd.allreduce(mine(), average=False), torch.full((3, 2), total() * 1.0))
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(mine(), average=True, op=hvd.Sum)


def test_forms_in_place() -> None:
    x = mine()
    assert hvd.allreduce_(x, op=hvd.Sum) is x
    assert torch.equal(x, torch.full((3, 2), total() * 1.0))
    xs = [mine(), mine(torch.int64, 4)]
    handle = hvd.grouped_allreduce_async_(xs, op=hvd.Max)
    assert hvd.synchronize(handle) is xs
    assert all((x == hvd.size()).all() for x in xs)
    y = mine()
    assert hvd.broadcast_(y, 0) is y
    assert (y == 1).all()


def test_handles() -> None:
    handles = [hvd.allreduce_async(mine(torch.int32, i + 1), op=hvd.Sum) for i in range(150)]
    for i, handle in enumerate(handles):
        assert hvd.synchronize(handle).tolist() == [total()] * (i + 1)
        with pytest.raises(ValueError, match="was not created"):
            hvd.poll(handle)
        assert hvd.synchronize(handle) is None
    assert hvd.synchronize(123456789) is None


@pytest.mark.usefixtures("two")
def test_poll_says_whether_a_result_is_there() -> None:
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(mine(), op=hvd.Sum, name="polled")
        assert not hvd.poll(handle)
        hvd.barrier()
    else:
        hvd.barrier()
        handle = hvd.allreduce_async(mine(), op=hvd.Sum, name="polled")
    while not hvd.poll(handle):
        pass
    assert (hvd.synchronize(handle) == total()).all()


def test_names_come_in_another_order_on_each_rank() -> None:
    names = [f"t{i}" for i in range(10)]
    mixed = names if hvd.rank() % 2 else list(reversed(names))
    reduced = {n: hvd.allreduce_async(mine(), name=n, op=hvd.Sum) for n in mixed}
    gathered = {n: hvd.allgather_async(mine(torch.int64, 1), name=n) for n in reversed(mixed)}
    for name in names:
        assert hvd.synchronize(gathered[name]).tolist() == list(range(1, hvd.size() + 1))
        assert (hvd.synchronize(reduced[name]) == total()).all()


@pytest.mark.parametrize("name", [None, "x"])
def test_a_form_that_waits_meets_one_that_does_not(name: str | None) -> None:
    """Names are those of the operation, not of its form."""
    rows = 2 * hvd.size()
    pairs: list[tuple[Callable[..., Any], Callable[..., Any], Any]] = [
        (hvd.allreduce, hvd.allreduce_async, mine()),
        (hvd.grouped_allreduce, hvd.grouped_allreduce_async, [mine(), mine()]),
        (hvd.allgather, hvd.allgather_async, mine()),
        (hvd.grouped_allgather, hvd.grouped_allgather_async, [mine(), mine()]),
        (hvd.alltoall, hvd.alltoall_async, mine(torch.float32, rows)),
        (hvd.reducescatter, hvd.reducescatter_async, mine(torch.float32, rows)),
        (hvd.grouped_reducescatter, hvd.grouped_reducescatter_async, [mine(torch.float32, rows)]),
    ]
    for waits, starts, x in pairs:
        if hvd.rank() == 0:
            waits(x, name=name)
        else:
            assert hvd.synchronize(starts(x, name=name)) is not None


@pytest.mark.usefixtures("two")
def test_a_name_in_flight_twice_is_refused_here() -> None:
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(mine(), name="twice")
        with pytest.raises(ValueError, match="in flight"):
            hvd.allreduce_async(mine(), name="twice")
        with pytest.raises(ValueError, match="in flight"):
            hvd.allreduce(mine(), name="twice")
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.allreduce_async(mine(), name="twice")
    hvd.synchronize(handle)
    assert hvd.allreduce(mine(), name="twice").shape == (3, 2)


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "\udc80"])
def test_a_name_that_cannot_be_printed_is_refused_and_does_not_stay(name: str) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="printable"):
            hvd.allreduce(mine(), name=name)
        with pytest.raises(ValueError, match="printable"):
            hvd.allreduce_async_(mine(), name=name)
    assert hvd.allreduce(mine(), name="gr\u00f6\u00dfer", op=hvd.Sum)[0, 0] == total()


@pytest.mark.parametrize("call", [hvd.allreduce, hvd.allreduce_, hvd.allreduce_async_])
def test_what_is_no_tensor_is_refused(call: Callable[..., Any]) -> None:
    for wrong in (None, [1.0], 1.0):
        with pytest.raises(ValueError, match="a torch tensor is needed"):
            call(wrong, name="x")


WRONG = ["shape", "rank", "dtype", "op", "factor", "root", "rows", "gathered", "scattered"]


def bad_calls() -> dict[str, Callable[[], Any]]:
    first = hvd.rank() == 0
    return {
        "shape": lambda: hvd.allreduce(torch.ones(2 if first else 3), name="x"),
        "rank": lambda: hvd.allreduce(torch.ones((4,) if first else (2, 2)), name="x"),
        "dtype": lambda: hvd.allreduce(torch.ones(2).to(DTYPES[0 if first else 4]), name="x"),
        "op": lambda: hvd.allreduce(torch.ones(2), op=hvd.Sum if first else hvd.Max, name="x"),
        "factor": lambda: hvd.allreduce(torch.ones(2), prescale_factor=1.0 + first, name="x"),
        "root": lambda: hvd.broadcast(torch.ones(2), 0 if first else 1, name="x"),
        "rows": lambda: hvd.allgather(torch.ones(2, 3 if first else 4), name="x"),
        "gathered": lambda: hvd.allgather(torch.ones(2).to(DTYPES[0 if first else 4]), name="x"),
        "scattered": lambda: hvd.reducescatter(torch.ones(4 if first else 6), name="x"),
    }


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("what", WRONG)
def test_what_differs_is_an_error_on_every_rank_and_the_job_goes_on(what: str) -> None:
    with pytest.raises(hvd.HorovodInternalError):
        bad_calls()[what]()
    assert (hvd.allreduce(mine(), op=hvd.Sum) == total()).all()


def test_what_could_never_work_is_a_value_error() -> None:
    for wrong in (torch.ones(2, 3).t(), [1.0], torch.ones(2, dtype=torch.complex64)):
        with pytest.raises(ValueError):  # noqa: PT011  # The texts differ.
            hvd.allreduce(wrong)
    with pytest.raises(ValueError):  # noqa: PT011
        hvd.broadcast(torch.ones(2), hvd.size())
    with pytest.raises(IndexError):
        hvd.allgather(torch.tensor(1.0))


def test_grouped_verbs() -> None:
    xs = [mine(torch.float64, 2), mine(torch.float64, 3, 3)]
    for y, x in zip(hvd.grouped_allreduce(xs, op=hvd.Sum), xs, strict=True):
        assert torch.equal(y, torch.full_like(x, total()))
    for y, x in zip(hvd.grouped_allgather(xs), xs, strict=True):
        assert y.shape[0] == x.shape[0] * hvd.size()
    parts = hvd.grouped_reducescatter([torch.ones(2 * hvd.size()), torch.ones(hvd.size(), 2)])
    assert [part.shape for part in parts] == [(2,), (1, 2)]
    several = hvd.grouped_allgather_async(xs)
    assert len(hvd.synchronize(several)) == 2


# -- the other verbs ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, *MORE, torch.bool], ids=str)
def test_allgather_of_any_rows(dtype: torch.dtype) -> None:
    x = torch.full((hvd.rank(), 2), 1).to(dtype)  # Rank 0 has none.
    gathered = hvd.allgather(x)
    assert gathered.shape == (sum(range(hvd.size())), 2)
    assert gathered.dtype == dtype
    assert (gathered == 1).all()


def test_broadcast_from_any_rank() -> None:
    for root in range(hvd.size()):
        assert (hvd.broadcast(mine(), root) == root + 1).all()


def test_alltoall() -> None:
    size = hvd.size()
    splits = torch.arange(1, size + 1, dtype=torch.int32)
    x = mine(torch.float32, int(splits.sum()))
    for given in (splits, splits.tolist()):
        out, received = hvd.alltoall(x, given)
        assert received.tolist() == [hvd.rank() + 1] * size
        assert received.dtype == torch.int32
        assert out.tolist() == [r + 1.0 for r in range(size) for _ in range(hvd.rank() + 1)]
    even = hvd.alltoall(mine(torch.float32, size))
    assert even.tolist() == [r + 1.0 for r in range(size)]
    assert len(hvd.synchronize(hvd.alltoall_async(mine(torch.float32, size)))) == 2


@pytest.mark.parametrize(
    "splits",
    [
        lambda size: torch.ones(size + 1, dtype=torch.int32),
        lambda size: torch.ones(size, 1, dtype=torch.int32),
        lambda size: torch.ones(size, dtype=torch.float32),
        lambda size: torch.full((size,), 2, dtype=torch.int32),
    ],
)
def test_splits_that_do_not_fit(splits: Callable[[int], torch.Tensor]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        hvd.alltoall(torch.ones(hvd.size()), splits(hvd.size()))
    with pytest.raises(ValueError, match="cannot be divided evenly"):
        hvd.alltoall(torch.ones(hvd.size() * 2 + 1) if hvd.size() > 1 else torch.tensor(1.0))


def test_reducescatter_gives_the_first_ranks_a_row_more() -> None:
    x = torch.ones(2 * hvd.size() + 1, 3)
    part = hvd.reducescatter(x, op=hvd.Sum)
    assert part.shape == (2 + (hvd.rank() == 0), 3)
    assert (part == hvd.size()).all()
    assert (hvd.reducescatter(x) == 1).all()
    with pytest.raises(hvd.HorovodInternalError):
        hvd.reducescatter(x, op=hvd.Max)
    with pytest.raises(ValueError, match="dim"):
        hvd.reducescatter(torch.tensor(1.0))


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_sparse_sums(op: Any) -> None:
    x = torch.sparse_coo_tensor([[0, hvd.rank() + 1]], [1.0, 2.0], (hvd.size() + 2,))
    reduced = hvd.sparse_allreduce_async(x, "s", op)().to_dense()
    expected = torch.tensor([hvd.size() * 1.0, *[2.0] * hvd.size(), 0.0])
    assert torch.allclose(reduced, expected / (hvd.size() if op == hvd.Average else 1))


def test_gradients_have_horovods_scale() -> None:
    """allgather and broadcast average what comes back, reducescatter multiplies by the size."""
    size = hvd.size()
    for op, scale in ((hvd.Sum, size), (hvd.Average, 1)):
        x = mine(torch.float64).requires_grad_()
        hvd.allreduce(x, op=op).sum().backward()
        assert torch.allclose(x.grad, torch.full_like(x, scale))
        x = mine(torch.float64, 2 * size).requires_grad_()
        hvd.reducescatter(x, op=op).sum().backward()
        assert torch.allclose(x.grad, torch.full_like(x, scale))
    x = mine(torch.float64, hvd.rank() + 1).requires_grad_()
    hvd.allgather(x).sum().backward()
    assert torch.allclose(x.grad, torch.ones_like(x))
    x = mine(torch.float64).requires_grad_()
    hvd.broadcast(x, 0).sum().backward()
    assert torch.allclose(x.grad, torch.full_like(x, hvd.rank() == 0))
    x = mine(torch.float64, size).requires_grad_()
    hvd.alltoall(x).sum().backward()
    assert torch.allclose(x.grad, torch.ones_like(x))


def test_compression() -> None:
    x = torch.tensor([1.5, 2.5])
    for codec in (hvd.Compression.fp16, hvd.Compression.bf16):
        small, context = codec.compress(x)
        assert small.element_size() == 2
        assert torch.equal(codec.decompress(small, context), x)
        whole, _ = codec.compress(torch.tensor([1]))
        assert whole.dtype == torch.int64
    assert torch.equal(hvd.allreduce(x, compression=hvd.Compression.fp16), x)


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_join(op: Any, dtype: torch.dtype) -> None:
    """Rank r has r + 1 batches. An average is divided by all ranks, as Horovod's."""
    for batch in range(hvd.rank() + 1):
        left = [rank + 1 for rank in range(batch, hvd.size())]
        total = sum(left)
        expected = {
            hvd.Sum: total,
            hvd.Average: total / hvd.size() if dtype.is_floating_point else total // hvd.size(),
            hvd.Min: left[0],
            hvd.Max: left[-1],
            hvd.Product: torch.tensor(left).prod().item(),
        }[op]
        reduced = hvd.allreduce(mine(dtype), op=op, name=f"batch {batch}")
        torch.testing.assert_close(reduced, torch.full((3, 2), expected).to(dtype))
    last = hvd.join()
    assert hvd.allgather_object(last) == [last] * hvd.size()


@pytest.mark.usefixtures("two")
def test_what_cannot_go_on_with_a_joined_rank() -> None:
    if hvd.rank() == 0:
        assert hvd.join() != 0
        return
    calls: list[Callable[[], Any]] = [
        lambda: hvd.broadcast(mine(), 1, name="x"),
        lambda: hvd.allgather(mine(), name="x"),
        lambda: hvd.reducescatter(mine(torch.float32, 4), name="x"),
    ]
    for call in calls:
        with pytest.raises(hvd.HorovodInternalError, match="not supported with Join"):
            call()
    hvd.join()


def test_sync_batch_norm() -> None:
    layer, wanted = hvd.SyncBatchNorm(2), nn.BatchNorm1d(2)
    xs = torch.randn(hvd.size(), 3, 2, generator=torch.Generator().manual_seed(1))
    got = layer(xs[hvd.rank()])
    everything = wanted(xs.view(-1, 2))
    torch.testing.assert_close(got, everything.view_as(xs)[hvd.rank()])
    torch.testing.assert_close(layer.running_var, wanted.running_var)


# -- process sets ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("two")
def test_process_sets() -> None:
    last = hvd.size() - 1
    members = [0, last] if last > 1 else [last]
    ends = hvd.add_process_set(reversed(members))  # Also what can be read only once.
    assert (ends.process_set_id, ends.ranks, ends.size()) == (1, members, len(members))
    everyone = list(range(hvd.size()))
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: everyone, 1: members}
    assert str(ends) == f"ProcessSet(process_set_id=1, ranks={members}, mpi_comm=None)"
    assert ends.included() == (hvd.rank() in members)
    with pytest.raises(ValueError, match="duplicate process set"):
        hvd.add_process_set(hvd.ProcessSet(members))
    if ends.included():
        expected = sum(rank + 1 for rank in members)
        assert (hvd.allreduce(mine(), op=hvd.Sum, process_set=ends) == expected).all()
        assert (hvd.broadcast(mine(), last, process_set=ends) == last + 1).all()
        hvd.barrier(ends)
        assert hvd.allgather_object(hvd.rank(), process_set=ends) == members
    else:
        with pytest.raises(ValueError, match="not a member of the provided process set"):
            hvd.allreduce(mine(), process_set=ends)
    assert hvd.remove_process_set(ends)
    assert not hvd.remove_process_set(ends)
    assert not hvd.remove_process_set(hvd.global_process_set)
    assert (ends.process_set_id, ends.size(), ends.included()) == (None, None, None)
    with pytest.raises(ValueError, match="does not exist, or has not been registered"):
        hvd.allreduce(mine(), process_set=ends)


def test_fixed_process_sets() -> None:
    hvd.barrier()
    hvd.shutdown()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HOROVOD_DYNAMIC_PROCESS_SETS")
        everyone, first = hvd.ProcessSet(range(hvd_size())), hvd.ProcessSet([0])
        with pytest.raises(ValueError, match="entry number 0 is a duplicate"):
            hvd.init(process_sets=[everyone])
        sets = [first] if hvd_size() > 1 else []
        hvd.init(process_sets=sets)
        assert [one.process_set_id for one in sets] == [1] * len(sets)
        with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS"):
            hvd.add_process_set([0])


def hvd_size() -> int:
    return int(os.environ["WORLD_SIZE"])


# -- models ---------------------------------------------------------------------------------------


def test_objects() -> None:
    assert hvd.broadcast_object({"rank": hvd.rank()}, root_rank=hvd.size() - 1) == {
        "rank": hvd.size() - 1
    }
    rank = hvd.rank()
    functions = hvd.allgather_object(lambda: rank)
    assert [function() for function in functions] == list(range(hvd.size()))


def test_parameters_and_optimizer_state() -> None:
    torch.manual_seed(hvd.rank())
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (hvd.rank() + 1))
    if hvd.rank() == 0:
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.1
    weights = hvd.allgather(model.weight.detach().view(1, -1))
    assert (weights == weights[0]).all()
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), root_rank=0)
    with pytest.raises(ValueError, match="dict"):
        hvd.broadcast_parameters([1, 2], root_rank=0)


def small_model() -> tuple[nn.Module, Any]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("groups", [None, 2, "list"])
@pytest.mark.parametrize("passes", [1, 2])
def test_training_equals_one_rank_with_all_samples(groups: Any, passes: int) -> None:
    torch.manual_seed(7)
    samples = torch.randn(hvd.size(), passes, 5, 4)
    alone, single = small_model()
    together, plain = small_model()
    optimizer = hvd.DistributedOptimizer(
        plain,
        named_parameters=together.named_parameters(),
        backward_passes_per_step=passes,
        groups=[list(together[0].parameters())] if groups == "list" else groups,
    )
    assert isinstance(optimizer, torch.optim.SGD)
    for _ in range(3):
        single.zero_grad()
        for batch in samples:
            for part in batch:
                (alone(part).square().mean() / hvd.size()).backward()
        single.step()
        optimizer.zero_grad()
        for part in samples[hvd.rank()]:
            together(part).square().mean().backward()
        optimizer.step()
    for ours, wanted in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, wanted)


def test_missing_gradients_count_as_zeros_also_in_a_group() -> None:
    """Horovod hangs where a member of a group has no gradient on one rank."""
    model, plain = small_model()
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters(), groups=1)
    before = model[1].weight.detach().clone()
    out = model[0](torch.ones(1, 4))
    (out if hvd.rank() else model[1](out)).sum().backward()
    optimizer.step()
    change = hvd.allgather((model[1].weight.detach() - before).view(1, -1))
    assert (change == change[0]).all()
    assert change[0].abs().sum() > 0


@pytest.mark.usefixtures("two")
def test_warnings_and_assertions() -> None:
    model, plain = small_model()
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    F.mse_loss(model(torch.ones(1, 4)), torch.ones(1, 1)).backward()
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match="without optimizer.skip_synchronize"):
        optimizer.step()
    optimizer.zero_grad()
    F.mse_loss(model(torch.ones(1, 4)), torch.ones(1, 1)).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(), optimizer.skip_synchronize():
        warnings.simplefilter("error")
        optimizer.step()


def test_arguments_that_are_wrong() -> None:
    model, plain = small_model()
    params = list(model.parameters())

    def make(**kwargs: Any) -> None:
        hvd.DistributedOptimizer(plain, **({"named_parameters": model.named_parameters()} | kwargs))

    twice = [("a", params[0]), ("a", params[1]), ("b", params[2]), ("c", params[3])]
    for wrong in (
        {"named_parameters": params},
        {"named_parameters": twice},
        {"named_parameters": twice[1:]},
        {"backward_passes_per_step": 0},
        {"groups": "all"},
        {"groups": -1},
        {"groups": [["weight"]]},
        {"groups": [params, params]},
        {"gradient_predivide_factor": 2.0, "op": hvd.Sum},
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            make(**wrong)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        make(num_groups=2)


def test_parameters_without_names_get_the_same_everywhere() -> None:
    _, plain = small_model()
    optimizer = hvd.DistributedOptimizer(plain)
    names = sorted(optimizer._parameter_names.values())
    assert len(set(names)) == 4
    assert hvd.allgather_object(names) == [names] * hvd.size()


def test_schedulers_and_state_dicts() -> None:
    model, plain = small_model()
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    optimizer.load_state_dict(optimizer.state_dict())


def test_more_backward_passes_than_announced() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    model(torch.ones(2)).sum().backward()
    if hvd.size() > 1:
        with pytest.raises(AssertionError, match="more than backward_passes_per_step times"):
            model(torch.ones(2)).sum().backward()
    optimizer.step()


def test_an_optimizer_goes_on_without_ranks_that_have_joined() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    expected = 0.0
    for step in range(hvd.rank() + 1):
        optimizer.zero_grad()
        model(torch.ones(1)).sum().backward()
        optimizer.step()
        expected -= (hvd.size() - step) / hvd.size()
    assert model.weight.item() == pytest.approx(expected)
    assert hvd.allgather_object(hvd.join())
