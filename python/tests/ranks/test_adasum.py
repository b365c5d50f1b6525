"""Adasum, on every rank: the verb against its definition, and the optimizer that reduces deltas."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import adam, assert_same_on_all_ranks, batch, mine, network, sgd

import corro.numpy as cn
import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]

Vector = numpy.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def of_two(a: Vector, b: Vector) -> Vector:
    dot, a_a, b_b = numpy.vdot(a, b), numpy.vdot(a, a), numpy.vdot(b, b)
    of_a = 1 - dot / (2 * a_a) if a_a else 1.0
    of_b = 1 - dot / (2 * b_b) if b_b else 1.0
    return numpy.asarray(of_a * a + of_b * b)


def reference(vectors: list[Vector]) -> Vector:
    """The first pairs become one until a power of two is left, then neighbours until one is."""
    left = [vector.astype("float64") for vector in vectors]
    power = 1 << (len(left).bit_length() - 1)
    extras = len(left) - power
    left = [of_two(*left[2 * i : 2 * i + 2]) for i in range(extras)] + left[2 * extras :]
    while len(left) > 1:
        left = [of_two(*left[i : i + 2]) for i in range(0, len(left), 2)]
    return left[0]


def vector(rank: int, count: int, seed: int = 0) -> Vector:
    return numpy.random.default_rng([rank, count, seed]).normal(0.2, 1, count)


def everyones(count: int, seed: int = 0) -> list[Vector]:
    return [vector(rank, count, seed) for rank in range(corro.size())]


@pytest.mark.parametrize("count", [1, 9, 3000, 300_000])
def test_is_its_definition(count: int) -> None:
    want = reference(everyones(count))
    own = vector(corro.rank(), count)
    for dtype, close in (("float64", 1e-12), ("float32", 1e-5), ("float16", 2e-2)):
        got = cn.allreduce(own.astype(dtype), corro.Adasum)
        numpy.testing.assert_allclose(got.astype("float64"), want, atol=close, rtol=close)
    half = corro.allreduce(torch.from_numpy(own).bfloat16(), corro.Adasum)
    numpy.testing.assert_allclose(half.double().numpy(), want, atol=0.2, rtol=0.1)


def test_forms_factors_and_groups() -> None:
    wants = [reference(everyones(100, seed)) for seed in range(5)]
    own = [torch.from_numpy(vector(corro.rank(), 100, seed)) for seed in range(5)]
    together = corro.grouped_allreduce(own, corro.Adasum)
    named = corro.grouped_allreduce_async(own, corro.Adasum, "adasum").wait()
    order = range(5) if corro.rank() % 2 else reversed(range(5))
    handles = {i: corro.allreduce_async(own[i], corro.Adasum, f"adasum {i}") for i in order}
    for i, want in enumerate(wants):
        numpy.testing.assert_allclose(together[i], want, atol=1e-12)
        numpy.testing.assert_allclose(named[i], want, atol=1e-12)
        numpy.testing.assert_allclose(handles[i].wait(), want, atol=1e-12)
    scaled = corro.allreduce(own[0], corro.Adasum, prescale_factor=4, postscale_factor=0.5)
    numpy.testing.assert_allclose(scaled, 2 * wants[0], atol=1e-12)
    group = corro.new_group([0])
    if corro.rank() == 0:
        assert torch.equal(corro.allreduce(own[0], corro.Adasum, group=group), own[0])
    corro.allreduce_(own[0], corro.Adasum)
    numpy.testing.assert_allclose(own[0], wants[0], atol=1e-12)


def test_what_cannot_be_is_refused_and_the_job_goes_on() -> None:
    with pytest.raises(corro.InvalidArgumentError, match=r"adasum needs f16, bf16, f32 or f64"):
        corro.allreduce(torch.ones(3, dtype=torch.int64), corro.Adasum)
    with pytest.raises(corro.InvalidArgumentError, match=r"adasum is there for allreduce alone"):
        corro.reducescatter(torch.ones(corro.size()), corro.Adasum)
    if corro.size() > 1:
        op = corro.Adasum if corro.rank() == 0 else corro.Sum
        with pytest.raises(corro.MismatchError, match="adasum"):
            corro.allreduce(torch.ones(3), op, "differs")
        factor = float(corro.rank())
        with pytest.raises(corro.MismatchError, match="scale"):
            corro.allreduce(torch.ones(3), corro.Adasum, "scales", prescale_factor=factor)
    assert torch.equal(corro.allreduce(torch.ones(3), corro.Adasum), torch.ones(3))


def test_who_has_joined_adds_nothing() -> None:
    own = vector(corro.rank(), 50)
    for step in range(corro.rank() + 1):
        got = cn.allreduce_async(own, corro.Adasum, f"step {step}").wait()
        left = [v if r >= step else 0 * v for r, v in enumerate(everyones(50))]
        numpy.testing.assert_allclose(got, reference(left), atol=1e-12)
    corro.join()


# -- the optimizer --------------------------------------------------------------------------------


def local_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int, passes: int = 1
) -> None:
    """A step with the gradients of one rank's share of the batches, as the rank itself makes it."""
    optimizer.zero_grad()
    for number in range(passes):
        x, y = batch(step * passes + number)
        x, y = x[rank :: corro.size()], y[rank :: corro.size()]
        F.mse_loss(model(x), y).backward()
    optimizer.step()


class Replicas:
    """What all ranks do, in one process."""

    def __init__(self, make: Callable[[nn.Module], torch.optim.Optimizer]) -> None:
        self.models = [network() for _ in range(corro.size())]
        self.optimizers = [make(model) for model in self.models]

    def step(self, number: int, passes: int = 1) -> None:
        starts = [copy.deepcopy(param) for param in self.models[0].parameters()]
        for rank, (model, optimizer) in enumerate(zip(self.models, self.optimizers, strict=True)):
            local_step(model, optimizer, number, rank, passes)
        with torch.no_grad():
            for i, start in enumerate(starts):
                params = [list(model.parameters())[i] for model in self.models]
                delta = reference([(param - start).numpy().ravel() for param in params])
                for param in params:
                    param.copy_(start + torch.from_numpy(delta).view_as(start))

    def assert_close(self, model: nn.Module) -> None:
        for want, got in zip(self.models[0].parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("make", [sgd, adam])
def test_deltas_are_reduced(
    make: Callable[[nn.Module], torch.optim.Optimizer], passes: int
) -> None:
    replicas, model = Replicas(make), network()
    optimizer = corro.DistributedOptimizer(
        make(model),
        model.named_parameters(),
        op=corro.Adasum,
        backward_passes_per_step=passes,
    )
    for step in range(5):
        replicas.step(step, passes)
        local_step(model, optimizer, step, corro.rank(), passes)
    replicas.assert_close(model)
    assert_same_on_all_ranks(model)


def test_a_closure_schedulers_and_states_work() -> None:
    model = network()
    inner = adam(model)
    before = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
    optimizer = corro.DistributedOptimizer(inner, op=corro.Adasum)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert type(optimizer).__name__ == "AdamW"
    after = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    x, y = batch(0)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(mine(x)), mine(y))
        loss.backward()
        return loss

    first, second = (optimizer.step(closure).item() for _ in range(2))
    assert first != second
    before.step()
    after.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0025)
    state = optimizer.state_dict()
    again = corro.DistributedOptimizer(adam(model), op=corro.Adasum)
    again.load_state_dict(state)
    again.step(closure)
    assert int(next(iter(again.state.values()))["step"]) == 3
    assert_same_on_all_ranks(model)


@pytest.mark.parametrize("codec", [corro.Compression.fp16, corro.Compression.bf16])
def test_deltas_may_travel_as_halves(codec: Any) -> None:
    replicas, model = Replicas(sgd), network()
    optimizer = corro.DistributedOptimizer(sgd(model), compression=codec, op=corro.Adasum)
    for step in range(3):
        replicas.step(step)
        local_step(model, optimizer, step, corro.rank())
    for want, got in zip(replicas.models[0].parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)
    assert_same_on_all_ranks(model)


def test_a_parameter_without_a_gradient_on_some_ranks_moves_on_all() -> None:
    model = nn.ModuleList([nn.Linear(2, 1, bias=False) for _ in range(2)])
    for layer in model:
        nn.init.zeros_(layer.weight)
    optimizer = corro.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), op=corro.Adasum
    )
    if corro.rank() == 0:
        model[0](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert model[0].weight.tolist() == [[-1.0, -1.0]]
    assert model[1].weight.tolist() == [[0.0, 0.0]]


def test_a_step_that_fails_leaves_the_parameters() -> None:
    if corro.size() == 1:
        return
    model = nn.Linear(2, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = corro.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), op=corro.Adasum
    )
    group = optimizer._group
    model(torch.ones(1, 2)).sum().backward()
    if corro.rank() == 0:
        with pytest.raises(corro.MismatchError):
            corro.allreduce(torch.ones(1), corro.Sum, "weight", group=group)
    else:
        with pytest.raises(corro.MismatchError):
            optimizer.step()
    assert model.weight.tolist() == [[1.0, 1.0]]


def test_what_is_wrong_is_said() -> None:
    model = network()

    def wrapped(**arguments: Any) -> Any:
        return corro.DistributedOptimizer(sgd(model), op=corro.Adasum, **arguments)

    with pytest.raises(corro.InvalidArgumentError, match="gradient_predivide_factor"):
        wrapped(gradient_predivide_factor=2.0)
    with pytest.raises(corro.InvalidArgumentError, match="backward_passes_per_step"):
        wrapped(backward_passes_per_step=0)
    with pytest.raises(corro.InvalidArgumentError, match="names twice"):
        wrapped(named_parameters=[("a", p) for p in model.parameters()])
    optimizer = wrapped()
    with pytest.raises(corro.InvalidArgumentError, match="DistributedOptimizer already"):
        corro.DistributedOptimizer(optimizer)
    if corro.size() > 1:
        with pytest.raises(corro.FailedPreconditionError, match="skip_synchronize"):
            optimizer.skip_synchronize()
