"""Gradients of every verb, process sets in each, and what verbs do to what they are given."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import horovod.torch as hvd

pytestmark = pytest.mark.usefixtures("job")

Sets = list[hvd.ProcessSet]


def mine(*shape: int) -> torch.Tensor:
    return torch.full(shape, hvd.rank() + 1, dtype=torch.float64)


def gradients(verb: Callable[[Any], Any], xs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Of the sum of all results."""
    xs = [x.requires_grad_() for x in xs]
    out = verb(xs if len(xs) > 1 else xs[0])
    outs = out if isinstance(out, list) else [out]
    sum(one.sum() for one in outs).backward()
    return [x.grad for x in xs if x.grad is not None]


def test_gradients_of_reductions(members: hvd.ProcessSet) -> None:
    if not members.included():
        return
    n = members.size()
    factors = {"prescale_factor": 2.0, "postscale_factor": 3.0, "process_set": members}
    for op, scale in ((hvd.Sum, 6.0 * n), (hvd.Average, 6.0), (1, 6.0 * n)):
        for verb, two in (
            (lambda x, op=op: hvd.allreduce(x, op=op, **factors), False),
            (lambda xs, op=op: hvd.grouped_allreduce(xs, op=op, **factors), True),
            (lambda x, op=op: hvd.reducescatter(x, op=op, **factors), False),
            (lambda xs, op=op: hvd.grouped_reducescatter(xs, op=op, **factors), True),
        ):
            for grad in gradients(verb, [mine(2 * n, 3)] * (1 + two)):
                torch.testing.assert_close(grad, torch.full_like(grad, scale * (1 + two)))


def test_gradients_of_what_moves(members: hvd.ProcessSet) -> None:
    """allgather and broadcast average what comes back; from alltoall it comes as it is."""
    if not members.included():
        return
    n, own = members.size(), members.rank()
    root = members.ranks[-1]
    [grad] = gradients(lambda x: hvd.allgather(x, process_set=members), [mine(own + 1, 2)])
    assert (grad == 1).all()
    for grad in gradients(
        lambda xs: hvd.grouped_allgather(xs, process_set=members), [mine(own + 1), mine(2, 2)]
    ):
        assert (grad == 1).all()
    [grad] = gradients(lambda x: hvd.broadcast(x, root, process_set=members), [mine(3)])
    assert (grad == (1 if hvd.rank() == root else 0)).all()
    [grad] = gradients(lambda x: hvd.alltoall(x, process_set=members), [mine(n)])
    assert (grad == 1).all()
    splits = [own + 1, *[0] * (n - 1)]
    [grad] = gradients(
        lambda x: hvd.alltoall(x, splits, process_set=members)[0], [mine(own + 3, 2)]
    )
    assert grad[:, 0].tolist() == [1.0] * (own + 1) + [0.0] * 2


def test_verbs_in_a_process_set(members: hvd.ProcessSet) -> None:
    """Roots are ranks of the world; rows come in the order of ranks."""
    if not members.included():
        return
    n, mean = members.size(), sum(members.ranks) / members.size() + 1
    by_rank = [rank + 1.0 for rank in members.ranks]
    assert hvd.allreduce(mine(1), process_set=members).tolist() == pytest.approx([mean])
    assert hvd.allgather(mine(1), process_set=members).tolist() == by_rank
    for root in members.ranks:
        assert hvd.broadcast(mine(1), root, process_set=members) == root + 1
    assert hvd.alltoall(mine(n), process_set=members).tolist() == by_rank
    part = hvd.reducescatter(mine(n), op=hvd.Sum, process_set=members)
    assert part.tolist() == [sum(by_rank)]
    x = torch.sparse_coo_tensor([[0]], [hvd.rank() + 1.0], (2,), check_invariants=True)
    averaged = hvd.sparse_allreduce_async(x, "s", hvd.Average, process_set=members)()
    assert averaged.to_dense().tolist() == pytest.approx([mean, 0])
    assert (
        hvd.broadcast_object(hvd.rank(), members.ranks[0], process_set=members)
        == (members.ranks[0])
    )


def test_sets_have_numbers_in_order() -> None:
    sets: Sets = [hvd.add_process_set([rank]) for rank in range(hvd.size() - 1)]
    assert [one.process_set_id for one in sets] == list(range(1, hvd.size()))
    assert [one.rank() for one in sets if one.included()] == [0] * (hvd.rank() < hvd.size() - 1)
    for one in sets:
        assert hvd.remove_process_set(one)


@pytest.mark.usefixtures("two")
def test_a_barrier_holds_back_its_members_alone(tmp_path: Path) -> None:
    """The last rank of the set comes late; who is not in the set does not wait for it."""
    folder = Path(hvd.broadcast_object(str(tmp_path)))
    everyone = hvd.size() == 2
    members = hvd.global_process_set if everyone else hvd.add_process_set([0, hvd.size() - 1])
    if hvd.rank() == hvd.size() - 1:
        time.sleep(0.2)
        (folder / "came").touch()
    if members.included():
        hvd.barrier(members)
        assert (folder / "came").exists()
    hvd.barrier()
    assert everyone or hvd.remove_process_set(members)


def test_what_comes_in_is_left_alone() -> None:
    n = hvd.size()
    x = mine(n, 2)
    hvd.grouped_allreduce([x, x], op=hvd.Sum)
    hvd.allgather(x)
    hvd.grouped_allgather([x])
    hvd.broadcast(x, n - 1)
    hvd.alltoall(x)
    hvd.reducescatter(x, op=hvd.Sum)
    hvd.synchronize(hvd.broadcast_async(x, n - 1))
    assert (x == hvd.rank() + 1).all()
    assert hvd.synchronize(hvd.broadcast_async_(x, n - 1)) is x
    assert (x == n).all()


def test_splits_may_leave_rows_behind_and_may_be_empty() -> None:
    n = hvd.size()
    x = torch.arange(n + 5.0)
    for verb in (hvd.alltoall, lambda x, s: hvd.synchronize(hvd.alltoall_async(x, s))):
        out, received = verb(x, [1] * n)
        assert out.tolist() == [float(hvd.rank())] * n
        assert received.tolist() == [1] * n
    for empty in ([], torch.tensor([], dtype=torch.int32)):
        out, received = hvd.alltoall(mine(n), empty)
        assert out.tolist() == [rank + 1.0 for rank in range(n)]
        assert received.tolist() == [1] * n


def test_a_group_has_one_handle_and_is_over_as_a_whole() -> None:
    xs = [mine(3), mine(200_000), mine(0)]
    handle = hvd.grouped_allreduce_async(xs, op=hvd.Sum, name="g")
    assert isinstance(handle, int)
    results = hvd.synchronize(handle)
    assert [result.shape for result in results] == [x.shape for x in xs]
    total = hvd.size() * (hvd.size() + 1) / 2
    assert all((result == total).all() for result in results)
    assert hvd.synchronize(handle) is None


Form = Callable[..., torch.Tensor]
FORMS: dict[str, Form] = {
    "allreduce": hvd.allreduce,
    "allreduce_": hvd.allreduce_,
    "allreduce_async": lambda x, **how: hvd.synchronize(hvd.allreduce_async(x, **how)),
    "allreduce_async_": lambda x, **how: hvd.synchronize(hvd.allreduce_async_(x, **how)),
    "grouped_allreduce": lambda x, **how: hvd.grouped_allreduce([x], **how)[0],
    "grouped_allreduce_": lambda x, **how: hvd.grouped_allreduce_([x], **how)[0],
    "grouped_allreduce_async": lambda x, **how: hvd.synchronize(
        hvd.grouped_allreduce_async([x], **how)
    )[0],
    "grouped_allreduce_async_": lambda x, **how: hvd.synchronize(
        hvd.grouped_allreduce_async_([x], **how)
    )[0],
    "reducescatter": hvd.reducescatter,
    "reducescatter_async": lambda x, **how: hvd.synchronize(hvd.reducescatter_async(x, **how)),
    "grouped_reducescatter": lambda x, **how: hvd.grouped_reducescatter([x], **how)[0],
    "grouped_reducescatter_async": lambda x, **how: hvd.synchronize(
        hvd.grouped_reducescatter_async([x], **how)
    )[0],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_each_form_takes_both_factors(form: Form) -> None:
    x = torch.ones(hvd.size(), 2)
    result = form(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25)
    assert (result == hvd.size() / 2).all()


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("name", ["allreduce", "grouped_allreduce", "reducescatter"])
def test_compression_is_seen_in_the_result(name: str) -> None:
    """2049 is no float16, and 257 no bfloat16."""
    for compression, value in ((hvd.Compression.fp16, 2049.0), (hvd.Compression.bf16, 257.0)):
        x = torch.full((hvd.size(), 2), value)
        small = FORMS[name](x, op=hvd.Average, compression=compression)
        torch.testing.assert_close(small, torch.full_like(small, value - 1), rtol=1e-5, atol=0)
        whole = FORMS[name](x, op=hvd.Average)
        torch.testing.assert_close(whole, torch.full_like(whole, value), rtol=1e-5, atol=0)


@pytest.mark.usefixtures("two")
def test_operations_of_a_set_do_not_count_for_the_world() -> None:
    one = hvd.add_process_set([0])
    if hvd.rank() == 0:
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=one).item() == 1
        hvd.barrier(process_set=one)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    hvd.remove_process_set(one)


def until_waiting(thread: threading.Thread) -> None:
    """Waits until the thread is over, or inside of its first exchange with other ranks."""
    while thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)
        if frame is not None and frame.f_code.co_name in ("exchange", "barrier"):
            return
        time.sleep(0.001)


@pytest.mark.usefixtures("two")
def test_objects_and_parameters_go_in_another_order_on_each_rank() -> None:
    """One thread after the other begins; on rank 0 the other one first."""
    results: dict[str, Any] = {}
    parameters = [torch.full((3,), float(hvd.rank()))]

    def run(what: str) -> None:
        if what == "parameters":
            hvd.broadcast_parameters(parameters, 0)
        elif what == "barrier":
            hvd.barrier()
        elif what == "gathered":
            results[what] = hvd.allgather_object(hvd.rank() * "x", name="g")
        else:
            results[what] = hvd.broadcast_object(what, 0, name=what)

    kinds = ["one", "other", "parameters", "barrier", "gathered"]
    threads = [threading.Thread(target=run, args=(what,)) for what in kinds]
    for thread in threads if hvd.rank() == 0 else reversed(threads):
        thread.start()
        until_waiting(thread)
    for thread in threads:
        thread.join()
    assert results["one"] == "one"
    assert results["other"] == "other"
    assert results["gathered"] == [rank * "x" for rank in range(hvd.size())]
    assert (parameters[0] == 0).all()
