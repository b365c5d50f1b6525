"""The wrapped optimizer is the optimizer that was given: every way to change it, as in one process.

A way is a generator: it begins before the optimizer is wrapped, is sent what DistributedOptimizer
returned, and goes on after each step.
"""

from __future__ import annotations

import copy
import pickle
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator
from types import MethodType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler
from training import assert_same_on_all_ranks, batch, mine, network, sgd

import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]

Optimizer = torch.optim.Optimizer
Way = Generator[None, Any, None]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def scheduler_before(plain: Optimizer) -> Way:
    scheduler = lr_scheduler.StepLR(plain, 1, gamma=0.5)
    yield
    while True:
        yield
        scheduler.step()


def scheduler_after(_: Optimizer) -> Way:
    optimizer = yield
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    while True:
        yield
        scheduler.step()


def schedulers_on_both_sides(plain: Optimizer) -> Way:
    first = lr_scheduler.OneCycleLR(plain, 0.1, total_steps=20, cycle_momentum=True)
    optimizer = yield
    second = lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch)
    while True:
        yield
        first.step()
        second.step()


def scheduler_that_comes_first(plain: Optimizer) -> Way:
    """torch warns of it: the first rate is skipped."""
    scheduler = lr_scheduler.StepLR(plain, 1, gamma=0.5)
    yield
    scheduler.step()
    while True:
        yield


def scheduler_of_losses(plain: Optimizer) -> Way:
    scheduler = lr_scheduler.ReduceLROnPlateau(plain, patience=0)
    yield
    while True:
        yield
        scheduler.step(1.0)


def scheduler_of_a_tensor(plain: Optimizer) -> Way:
    plain.param_groups[0]["lr"] = torch.tensor(0.05)
    scheduler = lr_scheduler.StepLR(plain, 1, gamma=0.5)
    yield
    while True:
        yield
        scheduler.step()


def group_that_somebody_holds(plain: Optimizer) -> Way:
    [group] = plain.param_groups
    yield
    while True:
        yield
        group["lr"] *= 0.5
        group["momentum"] = 0.5


def state_dict_loaded_before(plain: Optimizer) -> Way:
    state = copy.deepcopy(plain.state_dict())
    state["param_groups"][0]["lr"] = 0.02
    plain.load_state_dict(state)
    yield
    while True:
        yield


def state_dicts_loaded_after(plain: Optimizer) -> Way:
    scheduler = lr_scheduler.StepLR(plain, 1, gamma=0.5)
    optimizer = yield
    begin = copy.deepcopy(plain.state_dict())
    yield
    plain.load_state_dict(begin)
    scheduler.step()
    yield
    optimizer.load_state_dict(begin)
    while True:
        scheduler.step()
        yield


def groups_added(plain: Optimizer) -> Way:
    plain.add_param_group({"params": [nn.Parameter(torch.ones(2))], "lr": 1.0})
    plain.defaults["momentum"] = 0.0
    optimizer = yield
    plain.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
    yield
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(4))]})
    while True:
        yield


def state_assigned(plain: Optimizer) -> Way:
    param = plain.param_groups[0]["params"][0]
    plain.state[param]["momentum_buffer"] = torch.ones_like(param)
    optimizer = yield
    yield
    plain.state = defaultdict(dict)
    yield
    optimizer.state[param] = {"momentum_buffer": torch.ones_like(param)}
    while True:
        yield


def step_hooks(plain: Optimizer) -> Way:
    def halve(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert optimizer is plain
        assert len(args) == 1
        assert not kwargs
        optimizer.param_groups[0]["lr"] *= 0.5

    plain.register_step_pre_hook(halve)
    optimizer = yield
    optimizer.register_step_post_hook(halve)
    while True:
        yield


def step_that_somebody_has_replaced(plain: Optimizer) -> Way:
    below = plain.step

    def step(optimizer: Optimizer, closure: Any = None) -> Any:
        optimizer.param_groups[0]["lr"] *= 0.5
        return below() if closure is None else below(closure)

    plain.step = MethodType(step, plain)
    scheduler = lr_scheduler.StepLR(plain, 1, gamma=0.5)
    yield
    while True:
        yield
        scheduler.step()


WAYS = [
    scheduler_before,
    scheduler_after,
    schedulers_on_both_sides,
    scheduler_that_comes_first,
    scheduler_of_losses,
    scheduler_of_a_tensor,
    group_that_somebody_holds,
    state_dict_loaded_before,
    state_dicts_loaded_after,
    groups_added,
    state_assigned,
    step_hooks,
    step_that_somebody_has_replaced,
]


def trained(
    make_way: Callable[[Optimizer], Way], wrap: Callable[[Optimizer], Optimizer]
) -> tuple[nn.Module, list[dict[str, Any]], set[str]]:
    """Returns a model after some steps, its options, and what torch has warned of."""
    model = network()
    plain = sgd(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        way = make_way(plain)
        next(way)
        optimizer = wrap(plain)
        way.send(optimizer)
        for step in range(4):
            inputs = batch(step) if wrap is unwrapped else map(mine, batch(step))
            optimizer.zero_grad()
            x, y = inputs
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            next(way)
    options = [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]
    return model, options, {str(one.message) for one in caught}


def unwrapped(plain: Optimizer) -> Optimizer:
    return plain


def wrapped(plain: Optimizer) -> Optimizer:
    return corro.DistributedOptimizer(plain)


def wrapped_and_broadcast(plain: Optimizer) -> Optimizer:
    optimizer = corro.DistributedOptimizer(plain)
    corro.broadcast_optimizer_state(optimizer)
    return optimizer


def broadcast_and_wrapped(plain: Optimizer) -> Optimizer:
    corro.broadcast_optimizer_state(plain, root_rank=corro.size() - 1)
    return corro.DistributedOptimizer(plain)


@pytest.mark.parametrize("wrap", [wrapped, wrapped_and_broadcast, broadcast_and_wrapped])
@pytest.mark.parametrize("way", WAYS)
def test_a_way_to_change_it(
    way: Callable[[Optimizer], Way], wrap: Callable[[Optimizer], Optimizer]
) -> None:
    alone, wanted_options, wanted_warnings = trained(way, unwrapped)
    together, options, warned = trained(way, wrap)
    assert options == wanted_options
    assert warned == wanted_warnings
    for ours, theirs in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert_same_on_all_ranks(together)


def test_it_is_the_same_object_of_a_class_of_the_same_name() -> None:
    model = network()
    plain = sgd(model)
    optimizer: Any = corro.DistributedOptimizer(plain, model.named_parameters())
    assert optimizer is plain
    assert isinstance(plain, torch.optim.SGD)
    assert type(plain).__name__ == "SGD"


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="needs torch 2.3")
def test_a_gradscaler_unscales_once_whichever_name_it_is_given() -> None:
    def step(model: nn.Module, plain: Optimizer, optimizer: Optimizer, share: bool) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        x, y = map(mine, batch(0)) if share else batch(0)
        scaler.scale(F.mse_loss(model(x), y)).backward()
        scaler.unscale_(plain)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()

    alone, together = network(), network()
    one, many = sgd(alone), sgd(together)
    step(alone, one, one, share=False)
    step(together, many, corro.DistributedOptimizer(many), share=True)
    for ours, theirs in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_profiler_sees_the_step_and_the_zeroing_of_the_plain_class() -> None:
    def events(wrap: Callable[[Optimizer], Optimizer]) -> set[str]:
        model = network()
        optimizer = wrap(sgd(model))
        model(batch(0)[0]).sum().backward()
        with torch.profiler.profile() as profile:
            optimizer.step()
            optimizer.zero_grad()
        counts = {event.key: event.count for event in profile.key_averages()}
        return {f"{key}: {count}" for key, count in counts.items() if "Optimizer." in key}

    wanted = {"Optimizer.step#SGD.step: 1", "Optimizer.zero_grad#SGD.zero_grad: 1"}
    assert events(unwrapped) == wanted
    assert events(wrapped) == wanted


def test_an_optimizer_that_could_not_be_wrapped_is_as_before() -> None:
    model = network()
    plain = sgd(model)
    before = dict(vars(plain))
    with pytest.raises(corro.InvalidArgumentError, match="lacks 5"):
        corro.DistributedOptimizer(plain, list(model.named_parameters())[:1])
    assert type(plain) is torch.optim.SGD
    assert vars(plain) == before


def test_it_can_be_wrapped_again_once_its_parameters_are_anothers() -> None:
    if corro.size() == 1:
        return
    model, reference = network(), network()
    first, second = sgd(model), sgd(model)
    scheduler = lr_scheduler.StepLR(first, 1, gamma=0.5)
    corro.DistributedOptimizer(first)
    with pytest.raises(corro.InvalidArgumentError, match="already"):
        corro.DistributedOptimizer(first)
    corro.DistributedOptimizer(second)
    with pytest.raises(corro.FailedPreconditionError, match="another DistributedOptimizer"):
        first.step()
    optimizer = corro.DistributedOptimizer(first, model.named_parameters())
    assert optimizer is first
    alone = sgd(reference)
    for step in range(2):
        x, y = batch(step)
        for net, one, share in ((model, optimizer, mine), (reference, alone, lambda all: all)):
            one.zero_grad()
            F.mse_loss(net(share(x)), share(y)).backward()
            one.step()
        scheduler.step()
        alone.param_groups[0]["lr"] *= 0.5
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


# -- copies ---------------------------------------------------------------------------------------


def deep(optimizer: Optimizer) -> Optimizer:
    return copy.deepcopy(optimizer)


def pickled(optimizer: Optimizer) -> Optimizer:
    return pickle.loads(pickle.dumps(optimizer))


@pytest.mark.filterwarnings("ignore:a copy of a DistributedOptimizer")
@pytest.mark.parametrize("op", [corro.Average, corro.Adasum], ids=lambda op: op.name)
@pytest.mark.parametrize("copied", [deep, copy.copy, pickled])
def test_a_copy_is_a_plain_optimizer(
    copied: Callable[[Optimizer], Optimizer], op: corro.ReduceOp
) -> None:
    model = network()
    optimizer = corro.DistributedOptimizer(sgd(model), model.named_parameters(), op=op)
    F.mse_loss(model(batch(0)[0]), batch(0)[1]).backward()
    optimizer.step()
    other = copied(optimizer)
    assert type(other) is torch.optim.SGD
    assert vars(other).keys() == vars(sgd(model)).keys() - {"_warned_capturable_if_run_uncaptured"}
    [ours], [theirs] = optimizer.param_groups, other.param_groups
    assert {**ours, "params": []} == {**theirs, "params": []}
    before = theirs["params"][0].detach().clone()
    for param in theirs["params"]:
        param.grad = torch.full_like(param, corro.rank() + 1.0)
    other.step()
    buffer = optimizer.state[ours["params"][0]]["momentum_buffer"]
    moved = buffer if copied is copy.copy else 0.9 * buffer + corro.rank() + 1
    torch.testing.assert_close(before - theirs["params"][0], 0.05 * moved)


def test_a_copy_says_that_its_gradients_are_not_reduced_and_can_be_wrapped() -> None:
    model = network()
    optimizer = corro.DistributedOptimizer(sgd(model), model.named_parameters())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        other_model, other = copy.deepcopy((model, optimizer))
    if corro.size() > 1:
        assert "a copy of a DistributedOptimizer is a plain SGD" in str(caught[0].message)
    assert [warning.filename for warning in caught] == [__file__] * (corro.size() > 1)
    again = corro.DistributedOptimizer(other, other_model.named_parameters())
    assert again.param_groups[0]["params"][0] is next(other_model.parameters())
    x, y = map(mine, batch(1))
    F.mse_loss(other_model(x), y).backward()
    again.step()
    assert_same_on_all_ranks(other_model)
