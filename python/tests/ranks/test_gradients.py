"""What a user may do with gradients around backward(), on every rank: replicas never part silently."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from training import assert_same_on_all_ranks, batch, network, sgd

import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]


@pytest.fixture(autouse=True)
def several_ranks() -> None:
    torch.set_num_threads(1)
    if corro.size() == 1:
        pytest.skip("one rank has no gradients of others")


class Pair(nn.Module):
    """Two weights that begin as zeros; the input's names say which are used."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))

    def forward(self, scale: float, used: str = "ab") -> torch.Tensor:
        return sum((getattr(self, name).sum() * scale for name in used), torch.zeros(()))


def wrap(model: nn.Module, **arguments: object) -> torch.optim.Optimizer:
    plain = torch.optim.SGD(model.parameters(), lr=1.0)
    return corro.DistributedOptimizer(plain, model.named_parameters(), **arguments)


def scale() -> float:
    """Returns this rank's gradient; the mean of all is `mean()`."""
    return 1.0 + corro.rank()


def mean() -> float:
    return (corro.size() + 1) / 2


@pytest.mark.parametrize("arguments", [{}, {"compression": corro.Compression.fp16}, {"groups": 2}])
def test_a_gradient_replaced_after_backward_is_used(arguments: dict[str, object]) -> None:
    model = Pair()
    optimizer = wrap(model, **arguments)
    for step in range(1, 4):
        optimizer.zero_grad()
        model(scale()).backward()
        model.a.grad = 0.25 * model.a.grad
        optimizer.step()
        assert model.a.tolist() == [-0.25 * mean() * step] * 2
        assert model.b.tolist() == [-mean() * step] * 2


def test_a_gradient_replaced_after_synchronize_is_used() -> None:
    model = Pair()
    optimizer = wrap(model)
    model(scale(), used="a").backward()
    optimizer.synchronize()
    model.a.grad = 0.25 * model.a.grad
    optimizer.step()
    assert model.a.tolist() == [-0.25 * mean()] * 2
    assert model.b.tolist() == [0.0] * 2


def test_a_parameter_whose_gradient_is_removed_on_all_ranks_is_left_alone() -> None:
    model = Pair()
    inner = torch.optim.AdamW(model.parameters(), lr=1.0)  # Zeros instead would decay the weights.
    optimizer = corro.DistributedOptimizer(inner, model.named_parameters())
    nn.init.ones_(model.a)
    for step in range(4):
        optimizer.zero_grad()
        model(scale()).backward()
        if step < 3:
            model.a.grad = None
        optimizer.step()
        assert (model.a.tolist() == [1.0] * 2) == (step < 3)
    assert_same_on_all_ranks(model)


def test_gradients_removed_on_some_ranks_are_an_error_on_every_rank() -> None:

    def step_and_go_on() -> None:
        optimizer.step()
        optimizer.zero_grad()
        model(scale()).backward()

    for others in ("", "b"):  # Rank 0 removes a's; the others nothing, or b's.
        model = Pair()
        optimizer = wrap(model)
        model(scale()).backward()
        for name in "a" if corro.rank() == 0 else others:
            getattr(model, name).grad = None
        differs = "rank 0 has a where rank 1 has b" if others else "rank 0 called"
        with pytest.raises(corro.MismatchError, match=differs):
            step_and_go_on()


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_a_gradient_changed_before_it_was_reduced_is_refused(change: str) -> None:
    model = Pair()
    optimizer = wrap(model)
    for _ in range(2):
        model(scale(), used="a").backward()  # One bucket: it waits for b.
        model.a.grad = None if change == "removed" else torch.full((2,), 7.0)
        with pytest.raises(corro.FailedPreconditionError, match=r"of a was .* synchronize\(\)"):
            optimizer.step()
        optimizer.zero_grad()
        assert model.a.tolist() == model.b.tolist() == [0.0] * 2
    model(scale()).backward()
    optimizer.step()
    assert model.a.tolist() == model.b.tolist() == [-mean()] * 2


def test_a_graph_that_the_reduction_would_cut_is_refused() -> None:
    model = Pair()
    optimizer = wrap(model)
    with pytest.raises(corro.FailedPreconditionError, match=r"carries a graph.*create_graph"):
        model(scale()).square().backward(create_graph=True)
    optimizer.zero_grad()
    model(scale()).backward()
    optimizer.step()
    assert model.a.tolist() == [-mean()] * 2


def test_an_earlier_pass_keeps_its_graph() -> None:
    """A penalty on gradients: the second pass differentiates what the first has left."""

    def gradient(optimizer: torch.optim.Optimizer, model: nn.Module, x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward(create_graph=True)
        sum(param.grad.square().sum() for param in model.parameters()).backward()

    x = batch(0)[0]
    alone, together = network(), network()
    gradient(sgd(alone), alone, x)
    optimizer = corro.DistributedOptimizer(sgd(together), backward_passes_per_step=2)
    gradient(optimizer, together, x)  # The same on all ranks, and so their mean.
    for ours, wanted in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, wanted.grad, rtol=1e-4, atol=1e-5)
    optimizer.step()
    assert_same_on_all_ranks(together)


def test_sparse_gradients_become_dense_and_an_optimizer_that_needs_them_is_refused() -> None:
    table = nn.Embedding(8, 3, sparse=True)
    nn.init.zeros_(table.weight)
    with pytest.raises(corro.InvalidArgumentError, match=r"SparseAdam .* sparse"):
        corro.DistributedOptimizer(torch.optim.SparseAdam(list(table.parameters())))
    optimizer = wrap(table)
    table(torch.tensor([corro.rank()])).sum().backward()
    optimizer.step()
    assert table.weight[corro.rank()].tolist() == pytest.approx([-1 / corro.size()] * 3)
    assert_same_on_all_ranks(table)
