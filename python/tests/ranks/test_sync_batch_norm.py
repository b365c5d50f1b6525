"""SyncBatchNorm, on every rank, against torch's batch norm of all samples at once."""

from __future__ import annotations

import pytest
import torch

import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]


def batches(*shape: int) -> list[torch.Tensor]:
    """Returns every rank's samples, of different numbers, far from zero."""
    random = torch.Generator().manual_seed(3)
    return [
        100 + torch.randn(2 + rank, 3, *shape, generator=random, dtype=torch.float64)
        for rank in range(corro.size())
    ]


def pair(**options: object) -> tuple[torch.nn.Module, torch.nn.Module]:
    alone, together = torch.nn.SyncBatchNorm(3, **options), corro.SyncBatchNorm(3, **options)
    for layer in (alone, together):
        layer.double()
        if layer.affine:
            torch.nn.init.constant_(layer.weight, 2.0)
            torch.nn.init.constant_(layer.bias, -1.0)
    return alone, together


def whole(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What torch does on one device: its SyncBatchNorm would ask for a process group."""
    momentum = layer.momentum
    if layer.training and layer.track_running_stats:
        layer.num_batches_tracked.add_(1)
        if momentum is None:
            momentum = 1.0 / float(layer.num_batches_tracked)
    return torch.nn.functional.batch_norm(
        x,
        layer.running_mean,
        layer.running_var,
        layer.weight,
        layer.bias,
        layer.training or not layer.track_running_stats,
        momentum or 0.0,
        layer.eps,
    )


@pytest.mark.parametrize("shape", [(), (4,), (4, 5)])
@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}],
    ids=str,
)
def test_it_is_a_batch_norm_of_all_samples(shape: tuple[int, ...], options: dict) -> None:
    alone, together = pair(**options)
    xs = batches(*shape)
    for _ in range(2):
        everything = torch.cat(xs).requires_grad_()
        wanted = whole(alone, everything)
        wanted.square().sum().mul(0.5).add(wanted.sum()).backward()
        mine = xs[corro.rank()].clone().requires_grad_()
        got = together(mine)
        got.square().sum().mul(0.5).add(got.sum()).backward()
        begin = sum(len(x) for x in xs[: corro.rank()])
        part = slice(begin, begin + len(mine))
        torch.testing.assert_close(got, wanted[part])
        torch.testing.assert_close(mine.grad, everything.grad[part], atol=1e-7, rtol=1e-5)
    for name, value in alone.named_buffers():
        torch.testing.assert_close(dict(together.named_buffers())[name], value)
    if together.affine:
        total = corro.allreduce(together.weight.grad, corro.Sum)
        torch.testing.assert_close(total, alone.weight.grad)


def test_in_evaluation_nobody_is_asked() -> None:
    alone, together = pair()
    alone.eval(), together.eval()
    x = batches(4)[corro.rank()]
    if corro.rank() == 0:
        torch.testing.assert_close(together(x), whole(alone, x))


def test_halves_are_summed_in_floats() -> None:
    layer = corro.SyncBatchNorm(3)
    x = batches(4)[corro.rank()].to(torch.bfloat16)
    assert layer(x).dtype == torch.bfloat16
    with pytest.raises(corro.InvalidArgumentError, match=r"expected \(N, 3, ...\)"):
        layer(torch.ones(2, 4))


def network(layer: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    first, last = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    return torch.nn.Sequential(first, layer, torch.nn.Tanh(), last).double()


def penalty(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Returns how far the gradients of the samples are from 1 in length."""
    x = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return (grad.norm(dim=1) - 1).square().sum()


def test_a_gradient_penalty_is_that_of_all_samples() -> None:
    alone, together = network(torch.nn.BatchNorm1d(3)), network(corro.SyncBatchNorm(3))
    xs = batches()
    penalty(alone, torch.cat(xs)).backward()
    penalty(together, xs[corro.rank()]).backward()
    for (name, mine), wanted in zip(together.named_parameters(), alone.parameters(), strict=True):
        if wanted.grad is None:
            continue
        grad = torch.zeros_like(mine) if mine.grad is None else mine.grad
        total = corro.allreduce(grad, corro.Sum)
        torch.testing.assert_close(
            total, wanted.grad, atol=1e-8, rtol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )
