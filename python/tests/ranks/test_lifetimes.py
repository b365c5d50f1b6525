"""What is dropped is freed: models, optimizers, and all that the engine holds for them.

Ranks collect garbage at different times, so each of them frees by itself.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import assert_same_on_all_ranks

import corro.torch as corro
from corro import _context

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("process_group")]

WEIGHTS = 1 << 8


@pytest.fixture(scope="module", autouse=True)
def all_is_collected_afterwards() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def quick_collections() -> None:
    """Collects what a test makes, not what was there before: torch's modules take 0.2 s."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    gc.collect()
    gc.freeze()


def held() -> dict[str, int]:
    """Returns what the engine holds."""
    gc.collect()
    engine = _context.current().engine
    return {name: engine.counter(name) for name in ("groups", "plans")}


def check_that_no_more_is_held(before: dict[str, int]) -> None:
    """Waits for other threads, which may be the last to drop what they share with this one."""
    end = time.monotonic() + 10
    while any(count > before[name] for name, count in held().items()):
        assert time.monotonic() < end, f"held before: {before}, and now: {held()}"
        time.sleep(0.01)


class Halves:
    """A compressor in Python."""

    @staticmethod
    def compress(x: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        return x.half(), x.dtype

    @staticmethod
    def decompress(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    inputs = next(model.parameters()).size(1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, inputs)).sum().backward()
        optimizer.step()


def distributed(model: nn.Module, **arguments: Any) -> torch.optim.Optimizer:
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return corro.DistributedOptimizer(plain, model.named_parameters(), **arguments)


def step_alone(model: nn.Module, **arguments: Any) -> None:
    steps(model, distributed(model, **arguments))


def with_other_hooks(model: nn.Module) -> None:
    """Ours moves behind it."""
    optimizer = distributed(model)
    model.weight.register_post_accumulate_grad_hook(lambda _: None)
    steps(model, optimizer)


def with_a_scheduler(model: nn.Module) -> None:
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    first = torch.optim.lr_scheduler.StepLR(plain, 1)
    optimizer = corro.DistributedOptimizer(plain)
    second = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    corro.broadcast_optimizer_state(optimizer)
    steps(model, optimizer)
    first.step()
    second.step()


def in_a_cycle(model: nn.Module) -> None:
    optimizer: Any = distributed(model)
    steps(model, optimizer)
    optimizer.trainer = {"optimizer": optimizer, "model": model}


def with_checkpointing(model: nn.Module) -> None:
    """backward() inside of backward(): gradients wait for what is being reduced."""
    optimizer = distributed(model)
    for _ in range(2):
        optimizer.zero_grad()
        x = torch.ones(2, WEIGHTS, requires_grad=True)
        checkpoint(model, x, use_reentrant=True).sum().backward()
        optimizer.step()


def with_a_graph_that_is_held(model: nn.Module) -> None:
    optimizer = distributed(model)
    loss = model(torch.ones(2, WEIGHTS)).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()


def without_a_step(model: nn.Module) -> None:
    distributed(model)


def not_stepped_after_backward(model: nn.Module) -> None:
    optimizer = distributed(model)
    steps(model, optimizer)
    model(torch.ones(2, WEIGHTS)).sum().backward()


def wrapped_twice(model: nn.Module) -> None:
    first = distributed(model)
    steps(model, first)
    steps(model, distributed(model))
    if corro.size() > 1:
        steps(model, corro.DistributedOptimizer(first))


def with_ddp(model: nn.Module) -> None:
    ddp = nn.parallel.DistributedDataParallel(model)
    steps(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1))


def with_sync_batch_norm(model: nn.Module) -> None:
    whole = nn.Sequential(model, corro.SyncBatchNorm(1))
    steps(whole, distributed(whole))


USES = [
    step_alone,
    with_other_hooks,
    with_a_scheduler,
    in_a_cycle,
    with_checkpointing,
    with_a_graph_that_is_held,
    without_a_step,
    not_stepped_after_backward,
    wrapped_twice,
    with_ddp,
    with_sync_batch_norm,
]
OPTIONS: list[dict[str, Any]] = [
    {"op": corro.Adasum},
    {"compression": corro.Compression.fp16},
    {"compression": Halves},
    {"groups": 2},
    {"backward_passes_per_step": 2},
]


@pytest.mark.parametrize(
    ("use", "options"),
    [(use, {}) for use in USES] + [(step_alone, options) for options in OPTIONS],
)
def test_a_model_is_freed(use: Callable[..., None], options: dict[str, Any]) -> None:
    def dropped() -> list[weakref.ref[Any]]:
        model = nn.Linear(WEIGHTS, 1)
        use(model, **options)
        grad = model.weight.grad
        return [weakref.ref(one) for one in (model, model.weight, grad) if one is not None]

    dropped()  # What is made once may stay.
    before = held()
    for _ in range(2):
        refs = dropped()
    check_that_no_more_is_held(before)
    assert [ref() for ref in refs] == [None] * len(refs)


def test_the_arena_gets_a_models_buckets_back() -> None:
    """What ranks shared for a plan, which is small, stays until the last of them has left it."""
    if corro.size() == 1:
        return
    arena = []
    for _ in range(10):
        step_alone(nn.Linear(1 << 20, 1))
        gc.collect()
        arena.append(_context.current().engine.counter("arena_bytes"))
    assert arena[-1] - arena[0] <= 2 * (4 << 20)


def test_ranks_may_free_at_different_times() -> None:
    kept: list[Any] = []
    for turn in range(6):
        model = nn.Linear(WEIGHTS, 1)
        optimizer = distributed(model)
        corro.broadcast_parameters(model.state_dict())
        steps(model, optimizer)
        if turn % corro.size() != corro.rank():
            kept.append((model, optimizer))
    model = nn.Linear(WEIGHTS, 1)
    corro.broadcast_parameters(model.state_dict())
    optimizer = distributed(model)
    steps(model, optimizer)
    kept.clear()
    steps(model, optimizer)
    assert_same_on_all_ranks(model)


def test_gradients_are_reduced_as_long_as_the_model_is_there() -> None:
    """Whether somebody holds the optimizer may differ: garbage is collected when it is."""
    if corro.size() == 1:
        return
    model = nn.Linear(2, 1, bias=False)
    optimizer: Any = distributed(model)
    if corro.rank() == 0:
        optimizer.cycle = optimizer
    del optimizer
    model(torch.full((1, 2), 1.0 + corro.rank())).sum().backward()
    assert model.weight.grad.tolist() == [[(corro.size() + 1) / 2] * 2]


def test_groups_are_freed() -> None:
    before = held()
    group = corro.new_group(range(corro.size()))
    corro.allreduce(torch.ones(3), group=group)
    handle = corro.allreduce_async(torch.ones(3), group=group)
    handle.wait()
    freed = weakref.ref(group) if hasattr(type(group), "__weakref__") else None
    del group, handle
    check_that_no_more_is_held(before)
    assert freed is None or freed() is None


def test_torchs_groups_are_freed() -> None:
    before = held()
    group = dist.new_group(list(range(corro.size())))
    dist.all_reduce(torch.ones(3), group=group)
    dist.barrier()
    dist.destroy_process_group(group)
    del group
    check_that_no_more_is_held(before)
