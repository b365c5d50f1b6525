"""DistributedOptimizer, on every rank, against one process with the same global batch."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import adam, assert_same_on_all_ranks, batch, losses, mine, network, sgd

import corro.torch as corro
from corro import _context

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("make", [sgd, adam])
def test_the_first_100_losses_are_those_of_one_process(
    make: Callable[[nn.Module], torch.optim.Optimizer],
) -> None:
    alone, together = network(), network()
    want = losses(alone, make(alone), 100, shared=False)
    optimizer = corro.DistributedOptimizer(make(together), together.named_parameters())
    got = losses(together, optimizer, 100, shared=True)
    assert got == pytest.approx(want, abs=1e-4)
    assert_same_on_all_ranks(together)


def test_it_is_an_optimizer_of_the_same_class() -> None:
    model = network()
    inner = adam(model)
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
    optimizer = corro.DistributedOptimizer(inner, model.named_parameters())
    assert isinstance(optimizer, torch.optim.AdamW)
    assert type(optimizer).__name__ == "AdamW"
    losses(model, optimizer, 2, shared=True)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.005)
    later = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    losses(model, optimizer, 1, shared=True)
    later.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0025)


def test_gradients_are_views_of_one_bucket_and_stay_so() -> None:
    if corro.size() == 1:
        return
    model = network()
    optimizer = corro.DistributedOptimizer(sgd(model), model.named_parameters())
    places = [p.grad.data_ptr() for p in model.parameters()]
    assert len({p.grad.untyped_storage().data_ptr() for p in model.parameters()}) == 1
    losses(model, optimizer, 2, shared=True)
    model.zero_grad(set_to_none=True)  # Takes the views away: the next step brings them back.
    losses(model, optimizer, 1, shared=True)
    assert [p.grad.data_ptr() for p in model.parameters()] == places


def test_reduction_begins_while_backward_runs() -> None:
    if corro.size() == 1:
        return
    model = network()
    optimizer = corro.DistributedOptimizer(sgd(model), model.named_parameters(), groups=6)
    engine = _context.current().engine
    before = engine.counter("ops")
    started = []

    def look(_: torch.Tensor) -> None:
        """The first layer's gradient comes last: the other layers' buckets are on their way."""
        until = time.monotonic() + 30
        while engine.counter("ops") < before + 4 and time.monotonic() < until:
            pass  # The engine's own thread starts them.
        started.append(engine.counter("ops"))

    model[0].weight.register_hook(look)
    x, y = batch(0)
    F.mse_loss(model(mine(x)), mine(y)).backward()
    assert started[0] >= before + 4
    optimizer.step()


def test_replaced_gradients_are_reduced() -> None:
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = corro.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    model.weight.grad = torch.full((1, 2), float(corro.rank()))
    optimizer.step()
    assert model.weight.tolist() == [[-(corro.size() - 1) / 2] * 2]


def test_clipping_between_synchronize_and_step() -> None:
    alone, together = network(), network()
    one, many = sgd(alone), corro.DistributedOptimizer(sgd(together), together.named_parameters())
    for step in range(20):
        x, y = batch(step)
        one.zero_grad()
        F.mse_loss(alone(x), y).backward()
        nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
        one.step()
        many.zero_grad()
        F.mse_loss(together(mine(x)), mine(y)).backward()
        many.synchronize()
        nn.utils.clip_grad_norm_(together.parameters(), 0.1)
        if step % 2:
            many.step()
        else:
            with many.skip_synchronize():
                many.step()
    for a, b in zip(alone.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_gradients_are_reduced_when_backward_returns() -> None:
    """So clipping, GradScaler and p.grad /= 2 work as in one process."""
    model, reference = network(), network()
    optimizer, alone = corro.DistributedOptimizer(sgd(model)), sgd(reference)
    for step in range(3):
        x, y = batch(step)
        for net, optim, inputs in (
            (model, optimizer, (mine(x), mine(y))),
            (reference, alone, (x, y)),
        ):
            optim.zero_grad()
            (1024 * F.mse_loss(net(inputs[0]), inputs[1])).backward()
            for param in net.parameters():
                assert param.grad is not None
                param.grad /= 1024
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)
            optim.step()
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
        assert torch.equal(corro.broadcast(ours.detach()), ours), "on all ranks"


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(corro.InvalidArgumentError, match="torch optimizer, got generator"):
        corro.DistributedOptimizer(torch.nn.Linear(2, 1).parameters())


def test_an_optimizer_is_wrapped_once() -> None:
    optimizer = corro.DistributedOptimizer(sgd(network()))
    with pytest.raises(corro.InvalidArgumentError, match="already"):
        corro.DistributedOptimizer(optimizer)


@pytest.mark.parametrize(
    ("differ", "theirs"),
    [
        ("shape", "bias float32[3]"),
        ("name", "odd.bias float32[2]"),
        ("dtype", "bias float64[2]"),
        ("number", "weight float32[2, 3]"),
        ("groups", "bias float32[2] in group 0"),
    ],
)
def test_parameters_that_differ_between_ranks_are_named_on_all(differ: str, theirs: str) -> None:
    if corro.size() == 1:
        return
    last = corro.size() - 1
    what = differ if corro.rank() == last else ""
    model = nn.Linear(3, 3 if what == "shape" else 2)
    if what == "dtype":
        model = model.double()
    prefix = "odd." if what == "name" else ""
    named = [(prefix + name, param) for name, param in model.named_parameters()]
    if what == "number":
        named = named[:1]
    optimizer = torch.optim.SGD([param for _, param in named], lr=0.1)
    with pytest.raises(corro.MismatchError) as caught:
        corro.DistributedOptimizer(optimizer, named, groups=2 if what == "groups" else 1)
    difference = f"rank 0 has bias float32[2] where rank {last} has {theirs}"
    assert str(caught.value).endswith(difference)
    assert ("parameters: 2 and 1; rank 0" in str(caught.value)) == (differ == "number")
    if differ != "groups":
        with pytest.raises(corro.MismatchError, match=f"^broadcast_parameters: .* rank {last} has"):
            corro.broadcast_parameters(named)


def test_values_that_nobody_has_broadcast_are_noticed_at_the_first_step_alone() -> None:
    def steps(seed: int) -> list[str]:
        torch.manual_seed(seed)
        model = nn.Linear(3, 2)
        optimizer = corro.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)  # It wraps step().
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.ones(1, 3)).sum().backward()
                optimizer.step()
                scheduler.step()
        assert {warning.filename for warning in caught} <= {__file__}
        return [str(warning.message) for warning in caught]

    assert steps(seed=1) == []
    said = steps(seed=corro.rank())
    if corro.rank() > 0 or corro.size() == 1:
        assert said == []
    else:
        others = ", ".join(str(rank) for rank in range(1, corro.size()))
        assert len(said) == 1
        assert f"on rank{'s' if corro.size() > 2 else ''} {others} than on rank 0" in said[0]
        assert "call broadcast_parameters(" in said[0]


def test_a_model_converted_after_wrapping_is_refused_or_goes_on() -> None:
    model = nn.Conv2d(2, 2, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = corro.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters()
    )
    mean = (corro.size() + 1) / 2
    for step in range(3):
        model.double().float()  # New memory for parameter and gradient.
        optimizer.zero_grad()
        assert model.weight.grad is None or not model.weight.grad.any()
        model(torch.full((1, 2, 1, 1), 1.0 + corro.rank())).sum().backward()
        optimizer.step()
        assert torch.equal(model.weight, torch.full_like(model.weight, 1 - (step + 1) * mean))
    if corro.size() == 1:
        return
    model.bfloat16()
    with pytest.raises(corro.FailedPreconditionError, match=r"weight became torch\.bfloat16"):
        optimizer.zero_grad()


def test_unused_parameters_count_as_zeros() -> None:
    model = nn.ModuleDict({"a": nn.Linear(2, 1, bias=False), "b": nn.Linear(2, 1, bias=False)})
    for param in model.parameters():
        nn.init.zeros_(param)
    optimizer = corro.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters()
    )
    for _ in range(2):  # Ranks take other branches: even ones a, odd ones b.
        optimizer.zero_grad()
        model["a" if corro.rank() % 2 == 0 else "b"](torch.ones(2)).sum().backward()
        optimizer.step()
    even = (corro.size() + 1) // 2
    assert model["a"].weight.tolist() == [[pytest.approx(-2 * even / corro.size())] * 2]
    assert model["b"].weight.tolist() == [
        [pytest.approx(-2 * (corro.size() - even) / corro.size())] * 2
    ]


def test_several_backward_passes_a_step() -> None:
    alone, together = network(), network()
    one = sgd(alone)
    many = corro.DistributedOptimizer(
        sgd(together), together.named_parameters(), backward_passes_per_step=2
    )
    for step in range(10):
        one.zero_grad()
        many.zero_grad()
        for half in (2 * step, 2 * step + 1):
            x, y = batch(half)
            F.mse_loss(alone(x), y).backward()
            F.mse_loss(together(mine(x)), mine(y)).backward()
        one.step()
        many.step()
    for a, b in zip(alone.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_too_many_backward_passes_are_an_error_that_says_what_to_do() -> None:
    if corro.size() == 1:
        return
    model = network()
    optimizer = corro.DistributedOptimizer(sgd(model), model.named_parameters(), op=corro.Sum)
    x, y = batch(0)
    F.mse_loss(model(x), y).backward()
    with pytest.raises(RuntimeError, match="backward_passes_per_step"):
        F.mse_loss(model(x), y).backward()
    optimizer.zero_grad()
    losses(model, optimizer, 2, shared=True)
    assert_same_on_all_ranks(model)


def test_a_model_wrapped_again_belongs_to_the_new_optimizer() -> None:
    model, reference = network(), network()
    first = corro.DistributedOptimizer(sgd(model), model.named_parameters())
    losses(model, first, 2, shared=True)
    x, y = batch(2)
    F.mse_loss(model(mine(x)), mine(y)).backward()  # Reductions may be in flight.
    model.load_state_dict(reference.state_dict())
    second = corro.DistributedOptimizer(sgd(model), model.named_parameters())
    got = losses(model, second, 4, shared=True)
    want = losses(reference, sgd(reference), 4, shared=False)
    assert got == pytest.approx(want, abs=1e-5)
    if corro.size() > 1:
        with pytest.raises(corro.FailedPreconditionError, match="another DistributedOptimizer"):
            first.step()


@pytest.mark.parametrize("unused", [False, True], ids=["all_used", "one_unused"])
def test_a_skipped_step(unused: bool) -> None:
    model = network()
    if unused:  # Its bucket, the last one, is not reduced when backward() returns.
        model.unused = nn.Linear(2, 2)
        model.forward = nn.Sequential(*list(model)[:5]).forward
    optimizer = corro.DistributedOptimizer(sgd(model), model.named_parameters(), groups=2)
    before = copy.deepcopy(model.state_dict())
    for step in range(3):  # As a GradScaler that finds infinities does.
        optimizer.zero_grad()
        x, y = batch(step)
        F.mse_loss(model(mine(x)), mine(y)).backward()
    optimizer.zero_grad()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    losses(model, optimizer, 2, shared=True)
    assert_same_on_all_ranks(model)


def test_a_shared_parameter_used_twice() -> None:
    layer = nn.Linear(4, 4, bias=False)
    nn.init.eye_(layer.weight)
    optimizer = corro.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=1.0))
    layer(layer(torch.ones(1, 4))).sum().backward()
    optimizer.step()
    # d/dW sum(W W x) = 1 (W x)' + W' 1 x' = 2 everywhere.
    assert torch.equal(layer.weight, torch.eye(4) - 2)


def test_parameters_added_and_unfrozen_later() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 1, bias=False))
    for param in model.parameters():
        nn.init.constant_(param, 0.1)
    model[0].weight.requires_grad_(False)
    optimizer = corro.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    extra = nn.Parameter(torch.zeros(2))
    for step in range(3):
        if step == 1:
            model[0].weight.requires_grad_(True)
        if step == 2:
            optimizer.add_param_group({"params": [extra]})
        optimizer.zero_grad()
        x = torch.full((1, 3), 1.0 + corro.rank())
        (model(x).sum() + (extra * corro.rank()).sum()).backward()
        optimizer.step()
    for param in [*model.parameters(), extra]:
        assert torch.equal(corro.broadcast(param), param)
    assert extra[0].item() == pytest.approx(-0.1 * (corro.size() - 1) / 2)


@pytest.mark.parametrize("groups", [1, 3, "lists"])
def test_groups_of_parameters(groups: int | str) -> None:
    model = network()
    params = list(model.parameters())
    chosen = [params[:2], params[3:5]] if groups == "lists" else groups
    optimizer = corro.DistributedOptimizer(sgd(model), model.named_parameters(), groups=chosen)
    alone = network()
    want = losses(alone, sgd(alone), 10, shared=False)
    assert losses(model, optimizer, 10, shared=True) == pytest.approx(want, abs=1e-4)


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
def test_compression(compression: str) -> None:
    model, alone = network(), network()
    optimizer = corro.DistributedOptimizer(
        sgd(model), model.named_parameters(), compression=getattr(corro.Compression, compression)
    )
    want = losses(alone, sgd(alone), 20, shared=False)
    assert losses(model, optimizer, 20, shared=True) == pytest.approx(want, rel=0.05, abs=0.02)


class Top:
    """The largest element travels in its place, in half the bytes; the rest comes a step later."""

    def __init__(self) -> None:
        self.calls = 0

    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        self.calls += 1
        small = torch.zeros_like(tensor).reshape(-1)
        at = tensor.reshape(-1).abs().argmax()
        small[at] = tensor.reshape(-1)[at]
        return small.half(), tensor.dtype

    def decompress(self, tensor: torch.Tensor, context: torch.dtype) -> torch.Tensor:
        return tensor.to(context)


def test_a_compressor_in_python() -> None:
    layer = nn.Linear(3, 1, bias=False)
    nn.init.zeros_(layer.weight)
    top = Top()
    optimizer = corro.DistributedOptimizer(
        torch.optim.SGD(layer.parameters(), lr=1.0), compression=top
    )
    for step in range(1, 3):
        layer(torch.tensor([1.0, 4.0, 2.0])).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        whole = [-1.0 * step, -4.0 * step, -2.0 * step]
        assert layer.weight.tolist() == [whole if corro.size() == 1 else [0, -4.0 * step, 0]]
    assert corro.size() == 1 or top.calls == 3, "one to know the size, one a step"


def test_a_compressor_that_changes_its_mind_is_named() -> None:
    class Fickle(Top):
        def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
            self.calls += 1
            return tensor.reshape(-1)[: self.calls], tensor.dtype

    layer = nn.Linear(3, 1, bias=False)
    optimizer = corro.DistributedOptimizer(
        torch.optim.SGD(layer.parameters(), lr=1.0), layer.named_parameters(), compression=Fickle()
    )
    assert isinstance(optimizer, torch.optim.SGD)
    if corro.size() == 1:
        return
    with pytest.raises(ValueError, match="gradient of weight"):
        layer(torch.ones(3)).sum().backward()
    with pytest.raises(ValueError, match=r"compression has to be .*not 'fp16'"):
        corro.DistributedOptimizer(
            torch.optim.SGD(layer.parameters(), lr=1.0),
            compression="fp16",  # type: ignore[arg-type]
        )


def test_predivide_and_sum() -> None:
    for arguments, factor in [
        ({"gradient_predivide_factor": 2.0}, 1.0),
        ({"op": corro.Sum}, float(corro.size())),
    ]:
        layer = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(layer.weight)
        optimizer = corro.DistributedOptimizer(
            torch.optim.SGD(layer.parameters(), lr=1.0), **arguments
        )
        layer(torch.ones(1)).sum().backward()
        optimizer.step()
        assert layer.weight.item() == -factor


def test_a_closure() -> None:
    """20 iterations take a gradient each, on shards that differ: replicas stay the same."""
    alone, together = network().double(), network().double()
    x, y = (part.double() for part in batch(0))
    settings: dict[str, Any] = {"max_iter": 20, "tolerance_change": 0.0}
    one = torch.optim.LBFGS(alone.parameters(), **settings)
    many = corro.DistributedOptimizer(torch.optim.LBFGS(together.parameters(), **settings))
    evaluations = []

    def closure(
        model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        evaluations.append(loss.item())
        return loss

    one.step(lambda: closure(alone, one, x, y))
    wanted, last = len(evaluations), evaluations[-1]
    assert wanted == 20
    many.step(lambda: closure(together, many, mine(x), mine(y)))
    assert len(evaluations) == 2 * wanted
    assert_same_on_all_ranks(together)
    shares = corro.allreduce(torch.tensor(evaluations[wanted:]))
    assert shares[-1].item() == pytest.approx(last, rel=1e-3)


def test_channels_last_and_mixed_dtypes() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Flatten(), nn.Linear(32, 2)).to(
        memory_format=torch.channels_last
    )
    model[2].to(torch.float64)
    optimizer = corro.DistributedOptimizer(sgd(model), model.named_parameters())
    corro.broadcast_parameters(model.state_dict())
    features = model[1](model[0](torch.ones(2, 4, 4, 4)))
    model[2](features.double()).sum().backward()
    if corro.size() > 1:
        assert model[0].weight.grad.stride() == model[0].weight.stride()
    optimizer.step()
    for param in model.parameters():
        assert torch.equal(corro.broadcast(param), param)


def test_wrong_arguments_name_what_is_wrong() -> None:
    model = network()
    with pytest.raises(ValueError, match="lacks 5"):
        corro.DistributedOptimizer(sgd(model), list(model.named_parameters())[:1])
    with pytest.raises(ValueError, match="twice"):
        corro.DistributedOptimizer(sgd(model), [("w", p) for p in model.parameters()])
    with pytest.raises(ValueError, match="tuples"):
        corro.DistributedOptimizer(sgd(model), list(model.parameters()))
    with pytest.raises(ValueError, match="passes"):
        corro.DistributedOptimizer(sgd(model), backward_passes_per_step=0)
    with pytest.raises(ValueError, match="op=Average"):
        corro.DistributedOptimizer(sgd(model), op=corro.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="positive"):
        corro.DistributedOptimizer(sgd(model), groups=0)


def test_states_are_made_equal() -> None:
    torch.manual_seed(corro.rank())
    model = nn.Linear(3, 2)
    optimizer = adam(model)
    for _ in range(corro.rank() + 1):  # Only rank 1 and later have taken two steps.
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.1 * (1 + corro.rank())
    corro.broadcast_parameters(model.state_dict())
    corro.broadcast_optimizer_state(optimizer)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    for state in optimizer.state.values():
        assert state["step"] == 1
        assert torch.equal(corro.broadcast(state["exp_avg"]), state["exp_avg"])
    for param in model.parameters():
        assert torch.equal(corro.broadcast(param), param)
    with pytest.raises(ValueError, match="dict"):
        corro.broadcast_parameters(["weight"])  # type: ignore[list-item]


def test_what_is_added_after_backward_changes_nothing_for_the_rest() -> None:
    """With sums: a second reduction would show."""
    first, frozen, added = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    frozen.requires_grad_(False)
    optimizer = corro.DistributedOptimizer(torch.optim.SGD([first, frozen], lr=1.0), op=corro.Sum)
    for step in range(3):
        optimizer.zero_grad()
        if step == 1:
            frozen.requires_grad_(True)
        (first.sum() + frozen.sum()).backward()
        if step == 2:
            optimizer.add_param_group({"params": [added]})
        optimizer.step()
        assert first.grad.tolist() == [corro.size()] * 2
        if step > 0:
            assert frozen.grad.tolist() == [corro.size()] * 2


@pytest.mark.parametrize("passes", [1, 2])
def test_ranks_with_fewer_batches_join(passes: int) -> None:
    """Rank r has r steps an epoch; a gradient that does not come counts as zero."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = corro.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), backward_passes_per_step=passes
    )
    weight, size = 0.0, corro.size()
    for _ in range(3):
        for step in range(corro.rank()):
            for _ in range(passes):
                model(torch.ones(1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            weight -= passes * (size - 1 - step) / size
        assert model.weight.item() == pytest.approx(weight)
        last = corro.join()
        everyone = corro.allgather_object(last)
        assert everyone == [last] * size
        weight = corro.broadcast_object(weight, root_rank=size - 1)
        corro.broadcast_parameters(model.state_dict(), root_rank=size - 1)


def test_several_optimizers_and_named_operations_beside_a_rank_that_has_joined() -> None:
    layers = [nn.Linear(2, 1, bias=False) for _ in range(2)]
    optimizers = [
        corro.DistributedOptimizer(torch.optim.Adam(layer.parameters()), layer.named_parameters())
        for layer in layers
    ]
    for layer in layers:
        corro.broadcast_parameters(layer.state_dict())
    for step in range(3 * corro.rank() + 1):
        for layer, optimizer in zip(layers, optimizers, strict=True):
            optimizer.zero_grad()
            layer(torch.ones(2)).sum().backward()
            if step % 2 == 1:
                layer(torch.ones(2)).sum().backward()  # One round more.
            optimizer.step()
        corro.allreduce(torch.tensor(1.0), name=f"metric {step}")
    corro.join()
    assert corro.allgather_object("done") == ["done"] * corro.size()


def test_batches_that_are_too_few_for_a_step_are_left_out() -> None:
    """Gradients of two passes make a step; who has one more joins without it."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = corro.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), backward_passes_per_step=2
    )
    for _ in range(2):
        model(torch.ones(1)).sum().backward()
        if corro.rank() == 0:
            model(torch.ones(1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        corro.join()
        optimizer.zero_grad()
        corro.broadcast_parameters(model.state_dict())
    assert model.weight.item() == pytest.approx(-4 / corro.size())
