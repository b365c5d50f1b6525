"""What a user may do with gradients around backward(): replicas never part silently."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import assert_same_on_all_ranks, batch, mine, network, sgd

import corro.torch as corro
from corro import _context

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
        differs = f"rank 0 has a where rank 1 has {others or 'nothing'}"
        with pytest.raises(corro.MismatchError, match=differs):
            step_and_go_on()


@pytest.mark.parametrize("change", ["replaced", "removed"])
@pytest.mark.parametrize("last", ["ab", "b"])
def test_a_gradient_changed_between_passes_is_used(change: str, last: str) -> None:
    model = Pair()
    optimizer = wrap(model, backward_passes_per_step=2)
    for step in range(1, 3):
        optimizer.zero_grad()
        model(scale()).backward()
        model.a.grad = None if change == "removed" else torch.full((2,), 7.0)
        model(scale(), used=last).backward()
        optimizer.step()
        wanted = (7.0 if change == "replaced" else 0.0) + (mean() if "a" in last else 0.0)
        assert model.a.tolist() == [-wanted * step] * 2
        assert model.b.tolist() == [-2 * mean() * step] * 2


def test_a_gradient_may_first_come_in_a_later_backward_and_on_one_rank_alone() -> None:
    model = Pair()
    optimizer = wrap(model)
    for step in range(1, 4):  # The later ones agree on what was removed in the one before.
        optimizer.zero_grad()
        model(1.0, used="a").backward()
        assert model.b.grad is None
        model(1.0, used="ab" if corro.rank() == 0 else "a").backward()
        assert model.b.grad is not None
        optimizer.step()
        assert model.a.tolist() == [-2.0 * step] * 2
        assert model.b.tolist() == pytest.approx([-step / corro.size()] * 2)


@pytest.mark.parametrize("change", ["none", "replaced", "removed"])
@pytest.mark.parametrize("users", ["all", "first", "nobody"])
def test_a_gradient_changed_between_reductions_is_used(change: str, users: str) -> None:
    """As between passes: a later backward() adds to what the user has left there."""
    model = Pair()
    optimizer = wrap(model)
    for step in range(1, 4):
        optimizer.zero_grad()
        model(scale()).backward()
        if change != "none":
            model.a.grad = None if change == "removed" else torch.full((2,), 7.0)
        uses = users == "all" or (users == "first" and corro.rank() == 0)
        model(scale(), used="ab" if uses else "b").backward()
        assert (model.a.grad is None) == (change == "removed" and users == "nobody")
        optimizer.step()
        wanted = {"none": mean(), "replaced": 7.0, "removed": 0.0}[change]
        wanted += {"all": mean(), "first": 1 / corro.size(), "nobody": 0.0}[users]
        assert model.a.tolist() == pytest.approx([-wanted * step] * 2)
        assert model.b.tolist() == pytest.approx([-2 * mean() * step] * 2)
    assert_same_on_all_ranks(model)


def test_a_gradient_that_is_set_without_backward_is_used() -> None:
    model = Pair()
    optimizer = wrap(model)
    model.a.grad = torch.full((2,), scale())
    assert model.b.grad is not None
    model.b.grad.fill_(2 * scale())
    optimizer.step()
    assert model.a.tolist() == [-mean()] * 2
    assert model.b.tolist() == [-2 * mean()] * 2


def test_a_second_backward_is_refused_where_its_reduction_cannot_be_repeated() -> None:
    for arguments in ({"op": corro.Sum}, {"compression": corro.Compression.fp16}):
        model = Pair()
        optimizer = wrap(model, **arguments)
        model(scale()).backward()
        with pytest.raises(corro.FailedPreconditionError, match=r"of [ab] came once more .* plain"):
            model(scale()).backward()
        optimizer.zero_grad()
        model(scale()).backward()
        optimizer.step()
        wanted = mean() * (corro.size() if "op" in arguments else 1)
        assert model.a.tolist() == model.b.tolist() == [-wanted] * 2


def test_a_parameter_that_no_rank_uses_is_left_alone_as_in_one_process() -> None:
    model = Pair()
    nn.init.ones_(model.b)
    inner = torch.optim.AdamW(model.parameters(), lr=1.0)  # A gradient of zeros decays the weights.
    optimizer = corro.DistributedOptimizer(inner, model.named_parameters())
    for step in range(3):
        optimizer.zero_grad()
        model(scale(), used="a" if step < 2 or corro.rank() == 0 else "ab").backward()
        assert (model.b.grad is None) == (step < 2)
        optimizer.step()
        assert (model.b.tolist() == [1.0] * 2) == (step < 2)
    assert_same_on_all_ranks(model)


def test_a_group_serves_two_optimizers_and_operations_within_backward() -> None:
    """As SyncBatchNorm does: on one rank the bucket waits while the other is in the operation."""

    class Summed(torch.autograd.Function):
        @staticmethod
        def forward(_: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_: object, grad: torch.Tensor) -> torch.Tensor:
            return corro.allreduce(grad, op=corro.Sum, group=group)

    group = corro.new_group(range(corro.size()))
    models = Pair(), Pair()
    optimizers = [wrap(model, group=group, groups=2) for model in models]
    for step in range(1, 4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        # b's bucket goes first, and is complete before the allreduce, behind which a's gradient is.
        total = Summed.apply(models[0].a).sum() + models[0].b.sum() * scale()
        (total + models[1](scale())).backward()
        for optimizer in optimizers if corro.rank() == 0 else reversed(optimizers):
            optimizer.step()
        assert models[0].a.tolist() == [-step * corro.size()] * 2
        for param in (models[0].b, *models[1].parameters()):
            assert param.tolist() == [-step * mean()] * 2


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


def test_clipping_sees_reduced_gradients_though_one_parameter_gets_none() -> None:
    model = Pair()
    optimizer = wrap(model)
    for step in range(1, 3):
        optimizer.zero_grad()
        (model.a[0] * (1.0 + 8.0 * corro.rank())).backward()
        assert model.a.grad is not None
        assert model.a.grad.tolist() == [1.0 + 4.0 * (corro.size() - 1), 0.0]
        assert model.b.grad is None or not model.b.grad.any()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        assert model.a[0].item() == pytest.approx(-2.0 * step, abs=1e-4)
        assert model.b.tolist() == [0.0] * 2


def test_a_scaler_skips_on_all_ranks_though_one_parameter_gets_no_gradient() -> None:
    if not hasattr(torch.amp, "GradScaler"):
        pytest.skip("torch before 2.3 has no GradScaler for processors")
    model = Pair()
    optimizer = wrap(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for step in range(3):
        optimizer.zero_grad()
        lost = step == 1 and corro.rank() == corro.size() - 1
        scaler.scale(model(float("inf") if lost else scale(), used="a")).backward()
        scaler.step(optimizer)
        scaler.update()
    assert model.a.tolist() == [-2 * mean()] * 2
    assert corro.allgather(torch.tensor([scaler.get_scale()])).tolist() == [1.0] * corro.size()
    assert_same_on_all_ranks(model)


def test_a_line_search_uses_the_loss_of_all_ranks() -> None:
    """With its own loss each rank would evaluate another number of times."""

    def fit(model: nn.Module, shared: bool) -> int:
        x, y = (part.double() for part in batch(0))
        if shared:
            x, y = mine(x), mine(y)
        plain = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
        optimizer = corro.DistributedOptimizer(plain) if shared else plain
        evaluations = 0

        def closure() -> torch.Tensor:
            nonlocal evaluations
            evaluations += 1
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
        return evaluations

    alone, together = network().double(), network().double()
    assert fit(together, shared=True) == fit(alone, shared=False)
    assert_same_on_all_ranks(together)
    for ours, wanted in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-7)


def test_a_hook_put_on_after_wrapping_runs_before_the_reduction() -> None:
    weight = nn.Parameter(torch.zeros(1 << 20))  # Its reduction takes a while.
    optimizer = corro.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))

    def multiply(param: torch.Tensor) -> None:
        assert param.grad is not None
        param.grad *= scale()

    weight.register_post_accumulate_grad_hook(multiply)
    for _ in range(5):
        optimizer.zero_grad()
        weight.sum().backward()
        assert weight.grad is not None
        assert torch.equal(weight.grad, torch.full_like(weight, mean()))
        optimizer.step()


class Calls:
    """Counts calls of corro's Python functions by this thread, which runs backward(), too."""

    def __init__(self) -> None:
        self.count = 0
        self._package = str(Path(corro.__file__).parent)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        self.count += event == "call" and frame.f_code.co_filename.startswith(self._package)

    def of(self, step: Callable[[], object]) -> int:
        self.count = 0
        sys.setprofile(self)
        try:
            step()
        finally:
            sys.setprofile(None)
        return self.count


def test_a_step_costs_one_call_a_parameter_at_most_and_no_message_for_each() -> None:
    weights = nn.ParameterList(torch.zeros(16) for _ in range(1000))
    optimizer = wrap(weights)

    def step() -> None:
        optimizer.zero_grad()
        torch.cat(list(weights)).sum().backward()
        optimizer.step()

    step()  # The first one compares values, too.
    engine = _context.current().engine
    operations, messages = engine.counter("ops"), engine.counter("messages_sent")
    calls = Calls().of(step)
    assert engine.counter("ops") - operations <= 2
    assert engine.counter("messages_sent") - messages <= 8 * corro.size()
    assert calls <= len(weights) + 100


class Adversaries:
    """A generator and a discriminator, trained as in DCGAN: module.zero_grad(), two backwards."""

    def __init__(self, shared: bool) -> None:
        torch.manual_seed(5)
        self.generator, self.discriminator = nn.Linear(6, 6), nn.Linear(6, 1)
        models = (self.generator, self.discriminator)
        plain = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
        wrapped = (
            [corro.DistributedOptimizer(optimizer) for optimizer in plain] if shared else plain
        )
        self.of_generator, self.of_discriminator = wrapped
        self.part = mine if shared else lambda x: x

    def loss(self, x: torch.Tensor, label: float) -> torch.Tensor:
        scores = self.discriminator(x)
        return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, label))

    def step(self, number: int) -> None:
        real, noise = self.part(batch(number)[0]), self.part(batch(number + 100)[0])
        self.discriminator.zero_grad()
        self.loss(real, 1.0).backward()
        fake = self.generator(noise)
        self.loss(fake.detach(), 0.0).backward()
        self.of_discriminator.step()
        self.generator.zero_grad()
        self.loss(fake, 1.0).backward()  # It reaches the discriminator's parameters, too.
        self.of_generator.step()


def test_the_loop_of_dcgan_is_that_of_one_process() -> None:
    alone, together = Adversaries(shared=False), Adversaries(shared=True)
    for number in range(5):
        alone.step(number)
        together.step(number)
    for name in ("generator", "discriminator"):
        assert_same_on_all_ranks(getattr(together, name))
        one, all_ranks = (getattr(pair, name).parameters() for pair in (alone, together))
        for ours, wanted in zip(all_ranks, one, strict=True):
            torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5)


def test_reentrant_checkpoints_of_a_shared_layer_are_as_in_one_process() -> None:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer, shared: bool) -> None:
        for number in range(3):
            x = batch(number)[0]
            x = (mine(x) if shared else x).requires_grad_()
            optimizer.zero_grad()
            for _ in range(2):  # The layer's gradient comes twice within one backward().
                x = checkpoint(model, x, use_reentrant=True).tanh()
            x.square().sum(1).mean().backward()
            optimizer.step()

    torch.manual_seed(5)
    alone, together = nn.Linear(6, 6), nn.Linear(6, 6)
    together.load_state_dict(alone.state_dict())
    train(alone, sgd(alone), shared=False)
    train(together, corro.DistributedOptimizer(sgd(together)), shared=True)
    assert_same_on_all_ranks(together)
    for ours, wanted in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5)


def test_sparse_gradients_become_dense() -> None:
    table = nn.Embedding(8, 3, sparse=True)
    nn.init.zeros_(table.weight)
    optimizer = wrap(table)
    table(torch.tensor([corro.rank()])).sum().backward()
    optimizer.step()
    assert table.weight[corro.rank()].tolist() == pytest.approx([-1 / corro.size()] * 3)
    assert_same_on_all_ranks(table)


@pytest.mark.parametrize("removed", [False, True])
def test_an_optimizer_of_sparse_gradients_trains_as_on_one_rank(removed: bool) -> None:
    """Rows that no rank has used keep their moments: SparseAdam does not see them."""
    alone = nn.Embedding(4 * corro.size() + 1, 3, sparse=True)
    corro.broadcast_parameters(alone.state_dict())
    together = nn.Embedding.from_pretrained(
        alone.weight.detach().clone(), freeze=False, sparse=True
    )
    single = torch.optim.SparseAdam(list(alone.parameters()), lr=0.1)
    optimizer = corro.DistributedOptimizer(
        torch.optim.SparseAdam(list(together.parameters()), lr=0.1)
    )
    for step in range(3):
        rows = [[rank, 4 * rank + step] for rank in range(corro.size())]
        single.zero_grad()
        alone(torch.tensor(rows)).square().sum().div(corro.size()).backward()
        single.step()
        if removed:
            together.zero_grad(set_to_none=True)
        else:
            optimizer.zero_grad()
        together(torch.tensor(rows[corro.rank()])).square().sum().backward()
        optimizer.step()
    torch.testing.assert_close(together.weight, alone.weight)
    assert_same_on_all_ranks(together)
