"""hvd.DistributedOptimizer's arguments, and states of every optimizer that torch has."""

from __future__ import annotations

import inspect
import threading
import warnings
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import horovod.torch as hvd

pytestmark = pytest.mark.usefixtures("job")

# LBFGS is refused, Muon takes no vectors, SparseAdam no dense gradients.
OPTIMIZERS = sorted(
    name
    for name, cls in vars(torch.optim).items()
    if inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer)
    if name not in ("Optimizer", "LBFGS", "Muon", "SparseAdam")
)


def model_of(width: int = 3) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 1))


def equal_on_all(model: nn.Module) -> bool:
    flat = torch.cat([param.detach().view(-1) for param in model.parameters()])
    gathered = hvd.allgather(flat.view(1, -1))
    return bool((gathered == gathered[0]).all())


@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("passes", [1, 2])
def test_the_predivide_factor_changes_no_average(groups: int | None, passes: int) -> None:
    grads = []
    for factor in (1.0, 4.0):
        model = model_of()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            named_parameters=model.named_parameters(),
            gradient_predivide_factor=factor,
            groups=groups,
            backward_passes_per_step=passes,
        )
        for _ in range(passes):
            model(torch.full((2, 4), hvd.rank() + 1.0)).sum().backward()
        optimizer.synchronize()
        grads.append([param.grad.clone() for param in model.parameters()])
        with optimizer.skip_synchronize():
            optimizer.step()
        assert equal_on_all(model)
    torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.parametrize("arguments", [{}, {"groups": 1}, {"groups": 2}], ids=str)
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_ranks_with_different_layers_in_use(arguments: dict[str, Any], factor: float) -> None:
    """Horovod hangs if a group lacks a gradient on one rank, and forgets the factor in groups."""
    model = model_of()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        named_parameters=model.named_parameters(),
        gradient_predivide_factor=factor,
        **arguments,
    )
    before = model[1].bias.detach().clone()
    for _ in range(2):
        optimizer.zero_grad()
        hidden = model[0](torch.ones(1, 4))
        (model[1](hidden) if hvd.rank() == 0 else hidden).sum().backward()
        optimizer.step()
    assert equal_on_all(model)
    torch.testing.assert_close(before - model[1].bias.detach(), torch.full((1,), 2 / hvd.size()))


def test_the_number_of_passes_may_change() -> None:
    model = model_of()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    for passes in (1, 3, 2):
        optimizer.set_backward_passes_per_step(passes)
        optimizer.zero_grad()
        for _ in range(passes):
            model(torch.full((1, 4), hvd.rank() + 1.0)).sum().backward()
        optimizer.synchronize()
        assert model[1].bias.grad.item() == pytest.approx(passes)
        with optimizer.skip_synchronize():
            optimizer.step()
    assert equal_on_all(model)


@pytest.mark.parametrize("as_dense", [False, True])
@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad])
def test_sparse_gradients(base: type[torch.optim.Optimizer], as_dense: bool) -> None:
    """Each rank looks up another row; the result is that of one rank with all of them."""
    size, rank = hvd.size(), hvd.rank()

    def trained(distributed: bool) -> nn.Module:
        torch.manual_seed(3)
        model = nn.Embedding(size + 2, 4, sparse=True)
        optimizer: Any = base(model.parameters(), lr=0.5)
        if distributed:
            optimizer = hvd.DistributedOptimizer(
                optimizer, named_parameters=model.named_parameters(), sparse_as_dense=as_dense
            )
        for _ in range(2):
            optimizer.zero_grad()
            rows = [rank, size] if distributed else [*range(size), *[size] * size]
            loss = model(torch.tensor(rows)).pow(2).sum()
            (loss if distributed else loss / size).backward()
            optimizer.step()
        return model

    torch.testing.assert_close(trained(True).weight, trained(False).weight)


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average, 0, 1])
def test_gradients_are_added_or_averaged(op: Any) -> None:
    model = model_of()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=op
    )
    model(torch.ones(1, 4)).sum().backward()
    optimizer.synchronize()
    expected = hvd.size() if int(op) == hvd.Sum else 1
    assert model[1].bias.grad.item() == pytest.approx(expected)


def test_an_optimizer_in_a_process_set() -> None:
    """Ranks outside of the set train alone."""
    members = hvd.add_process_set(range(hvd.size() // 2 or 1)) if hvd.size() > 1 else None
    model = model_of()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        named_parameters=model.named_parameters(),
        **({} if members is None else {"process_set": members}),
    )
    before = model[1].bias.detach().clone()
    (model(torch.ones(1, 4)).sum() * (hvd.rank() + 1)).backward()
    optimizer.step()
    ranks = [hvd.rank()] if members is None or not members.included() else members.ranks
    mean = sum(rank + 1 for rank in ranks) / len(ranks)
    torch.testing.assert_close(before - model[1].bias.detach(), torch.full((1,), mean))


# -- states ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("trained", [False, True], ids=["empty", "trained"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_every_optimizer(name: str, trained: bool) -> None:
    """The root's values and types are there afterwards; without a step there, there is no state."""
    torch.manual_seed(hvd.rank())
    model = nn.Linear(3, 2)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01 * (hvd.rank() + 1))
    if trained and hvd.rank() == 0:
        for _ in range(2):
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    wanted = hvd.broadcast_object(described(optimizer))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert described(optimizer) == wanted
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert equal_on_all(model)


def described(optimizer: torch.optim.Optimizer) -> list[Any]:
    """Options and state, with the types of their values."""

    def of(value: Any) -> Any:
        return value.tolist() if isinstance(value, torch.Tensor) else value

    state = optimizer.state_dict()
    groups = [
        {key: (type(value).__name__, of(value)) for key, value in group.items()}
        for group in state["param_groups"]
    ]
    params = {
        index: {key: (type(value).__name__, of(value)) for key, value in values.items()}
        for index, values in state["state"].items()
    }
    return [groups, params]


def test_options_keep_their_types() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (hvd.rank() + 1), betas=(0.8, 0.9))
    optimizer.param_groups[0]["note"] = {"rank": hvd.rank()}
    hvd.broadcast_optimizer_state(optimizer, root_rank=hvd.size() - 1)
    [group] = optimizer.param_groups
    assert group["lr"] == 0.1 * hvd.size()
    assert group["betas"] == (0.8, 0.9)
    assert group["amsgrad"] is False
    assert group["note"] == {"rank": hvd.size() - 1}


@pytest.mark.parametrize("broadcast_first", [False, True])
def test_a_scheduler_of_the_plain_optimizer_drives_every_rank(broadcast_first: bool) -> None:
    model = model_of()
    plain = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(plain, step_size=1, gamma=0.5)
    [group] = plain.param_groups
    if broadcast_first:
        hvd.broadcast_optimizer_state(plain, 0)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    if not broadcast_first:
        hvd.broadcast_optimizer_state(optimizer, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Also of a scheduler that sees no step().
        for step in range(3):
            assert optimizer.param_groups[0]["lr"] == group["lr"] == 0.5**step
            optimizer.zero_grad()
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            scheduler.step()
    assert equal_on_all(model)


def test_options_of_any_kind_are_broadcast_or_refused_by_name() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * numpy.sqrt(hvd.rank() + 1))
    rank = hvd.rank()
    optimizer.param_groups[0]["note"] = lambda x: x + rank
    hvd.broadcast_optimizer_state(optimizer, 0)
    [group] = optimizer.param_groups
    assert type(group["lr"]) is numpy.float64
    assert group["lr"] == 0.1
    assert group["note"](1) == 1
    if hvd.size() > 1:
        if hvd.rank() == 0:
            group["note"] = threading.Lock()
        for _ in range(2):
            with pytest.raises(ValueError, match=r"rank 0 cannot send option 'note' of parameter"):
                hvd.broadcast_optimizer_state(optimizer, 0)
    lock = threading.Lock() if hvd.rank() == 0 else None
    with pytest.raises(ValueError, match="broadcast_object: rank 0 cannot send it"):
        hvd.broadcast_object(lock)
    with pytest.raises(ValueError, match="allgather_object: rank 0 cannot send it"):
        hvd.allgather_object(lock)


def test_what_cannot_be_broadcast() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), root_rank=0)
    for wrong in ([1, 2], "weights", 3):
        with pytest.raises(ValueError):  # noqa: PT011  # The texts differ.
            hvd.broadcast_parameters(wrong, root_rank=0)


@pytest.mark.usefixtures("two")
def test_a_parameter_without_a_gradient_on_any_rank_has_zeros() -> None:
    """Momentum goes on, as with Horovod."""
    used, unused = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([used, unused], lr=0.1, momentum=0.9),
        named_parameters=[("used", used), ("unused", unused)],
    )
    for step in range(4):
        optimizer.zero_grad()
        (used.sum() + unused.sum() if step % 2 == 0 else used.sum()).backward()
        optimizer.step()
    assert unused.item() == pytest.approx(0.4661)


@pytest.mark.usefixtures("two")
def test_parameters_that_differ_are_an_error_of_horovods() -> None:
    parameter = torch.nn.Parameter(torch.ones(hvd.rank() + 1))
    with pytest.raises(hvd.HorovodInternalError, match="different parameters"):
        hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1))


@pytest.mark.usefixtures("two")
def test_gradients_travel_compressed() -> None:
    """2049 is no float16."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=1.0), compression=hvd.Compression.fp16
    )
    (parameter.sum() * 2049).backward()
    optimizer.step()
    assert parameter.item() == -2048
