"""corro.parallelize() of what users get wrong, or do oddly: it trains, or says so in one line.

Each case either has the losses of one process under every kind of plan, or one line that says what
is wrong, on every rank, after which all ranks train something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from parallel_training import SEED, adam, alone, machines
from torch import Tensor, nn

import corro

pytestmark = pytest.mark.usefixtures("job", "one_thread")

WIDTH, SAMPLES = 6, 8
NO_PLAN = re.compile("needs an optimizer of torch.optim that goes by elements|to cut 1 layers")
Batch = dict[str, Any]


class Chain(nn.Module):
    """Layers that hand a tensor on; `use` says how one of them is called."""

    def __init__(self, use: Callable[[nn.Module, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.unused = nn.Linear(2, 2)
        self.use = use

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).tanh() if self.use is None else self.use(layer, x)
        return x


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    return F.mse_loss(model(batch["x"]), batch["y"])


def batches(count: int = 4) -> list[Batch]:
    random = torch.Generator().manual_seed(3)
    made = [torch.randn(2, SAMPLES - step % 3, WIDTH, generator=random) for step in range(count)]
    return [{"x": x, "y": y, "name": "odd", "ids": [1, 2], "none": None} for x, y in made]


def made(model: Callable[[], nn.Module] = Chain) -> nn.Module:
    torch.manual_seed(SEED)
    return model()


def plans() -> Iterator[dict[str, Any]]:
    size = corro.size()
    for zero in (0, 1, 3) if size > 1 else (0,):
        yield {"pipeline": 1, "zero": zero, "micro_batch": 1}
    if size > 1:
        yield {"pipeline": size, "micro_batch": 2, "recompute": "none"}
        yield {"pipeline": size, "micro_batch": 1, "recompute": "full"}


def started(**changes: Any) -> Any:
    model = changes.pop("model", None) or made()
    given = {
        "model": model,
        "optimizer": adam(model) if isinstance(model, nn.Module) else None,
        "loss": loss_of,
        "sample_batch": batches()[0],
        "resources": machines(),
        **changes,
    }
    return corro.parallelize(**given)


def all_train() -> None:
    """Nothing of what has failed is in the way."""
    with started(pins=list(plans())[-1]) as trainer:
        assert len(set(corro.allgather_object(trainer.step(batches()[0])))) == 1


# --- What trains ---------------------------------------------------------------------------------


class InPlace(nn.Module):
    """Layers that write to what they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(InPlaceLayer() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        for layer in self.layers:
            x = layer(x)
        return x


class InPlaceLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x += 0.25
        x.mul_(0.5)
        return self.inner(x)


def in_place_between(layer: nn.Module, x: Tensor) -> Tensor:
    x = layer(x)
    x += 0.5
    return x.tanh_()


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, WIDTH, sparse=True)
        self.rest = Chain()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.rest(x + self.table((x[:, 0].abs() * 4).long().clamp(max=8))[:, :])
        return result


class Counts(nn.Module):
    """A buffer that forward changes, and does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.rest = Chain()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        result: Tensor = self.rest(x)
        return result


def f64(model: nn.Module, batch: Batch) -> Tensor:
    return F.mse_loss(model(batch["x"].double()), batch["y"].double())


def one_element(model: nn.Module, batch: Batch) -> Tensor:
    return loss_of(model, batch).reshape(1)


Odd = tuple[
    Callable[[], nn.Module],
    Callable[[nn.Module, Any], Tensor],
    Callable[[nn.Module], torch.optim.Optimizer],
]
TRAINS: dict[str, Odd] = {
    "writes to what a layer is given": (InPlace, loss_of, adam),
    "writes to what a layer returned": (lambda: Chain(in_place_between), loss_of, adam),
    "a buffer that forward changes": (Counts, loss_of, adam),
    "float64": (lambda: Chain().double(), f64, adam),
    "a loss of shape [1]": (Chain, one_element, adam),
    "a part of the parameters": (
        Chain,
        loss_of,
        lambda model: torch.optim.AdamW(list(model.parameters())[3:5], 1e-2),
    ),
    "fused": (
        Chain,
        loss_of,
        lambda model: torch.optim.AdamW(model.parameters(), 1e-3, fused=True),
    ),
    "foreach": (
        Chain,
        loss_of,
        lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=True),
    ),
    "a learning rate that is a tensor": (
        Chain,
        loss_of,
        lambda model: torch.optim.Adam(model.parameters(), torch.tensor(1e-3), foreach=False),
    ),
    "maximize": (
        Chain,
        loss_of,
        lambda model: torch.optim.Adam(model.parameters(), 1e-3, maximize=True),
    ),
    "state of odd shapes": (
        Chain,
        loss_of,
        lambda model: torch.optim.Adafactor(model.parameters(), 1e-2),
    ),
    "sparse gradients": (
        Sparse,
        loss_of,
        lambda model: torch.optim.SGD(model.parameters(), 0.1),
    ),
}


@pytest.mark.parametrize("case", TRAINS)
def test_odd_models_train_as_in_one_process(case: str) -> None:
    model_of, loss, optimizer_of = TRAINS[case]
    try:
        optimizer_of(made(model_of))
    except (AttributeError, RuntimeError) as error:  # torch 2.2 lacks some of them.
        pytest.skip(f"this torch: {error}")
    expected, _ = alone(
        made(model_of), loss, batches(), lambda batch: len(batch["x"]), optimizer_of
    )
    ran = 0
    for pins in plans():
        model = made(model_of)
        optimizer = optimizer_of(model)
        try:
            trainer = started(model=model, optimizer=optimizer, loss=loss, pins=pins)
        except corro.InvalidArgumentError as error:
            if NO_PLAN.search(str(error)):
                continue
            raise
        with trainer:
            losses = [trainer.step(each) for each in batches()]
        assert losses == pytest.approx(expected, abs=1e-5), pins
        ran += 1
    assert ran > 0


def test_a_loss_that_is_not_a_number_is_one_on_all_ranks() -> None:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return loss_of(model, batch).log().sqrt()

    for pins in plans():
        trainer = started(loss=loss, pins=pins)
        assert trainer.step(batches()[0]) != trainer.step(batches()[0])
        trainer.close()
    all_train()


# --- What is refused -----------------------------------------------------------------------------


class Decides(nn.Module):
    where = r"inner\.1"

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), Branch())

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x)
        return result


class DecidesBetween(nn.Module):
    where = ""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[0](x)
        x = x if x.sum() > 0 else -x
        for layer in self.layers[1:]:
            x = layer(x)
        return x


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class FailsOn(Chain):
    """Raises on one rank alone, already when it is recorded."""

    def forward(self, x: Tensor) -> Tensor:
        if corro.rank() == corro.size() - 1:
            raise KeyError("on this rank")
        return super().forward(x)


def frozen() -> nn.Module:
    return Chain().requires_grad_(False)


def lbfgs(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(model.parameters())


def with_batch(**changes: Any) -> Batch:
    return {**batches()[0], **changes}


REFUSED: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "a model that raises on one rank": (lambda: {"model": made(FailsOn)}, "on this rank"),
    "a model on the meta device": (
        lambda: {"model": Chain().to("meta")},
        "layers.0.weight: is on the meta device",
    ),
    "nothing to train": (
        lambda: {"model": frozen(), "optimizer": adam(frozen())},
        "not the model's|no parameter",
    ),
    "a frozen model": (lambda: {"model": made(frozen)}, "no parameter"),
    "an optimizer that calls a closure": (
        lambda: (lambda model: {"model": model, "optimizer": lbfgs(model)})(made()),
        "LBFGS.*closure",
    ),
    "an optimizer that reduces by itself": (
        lambda: (
            lambda model: {
                "model": model,
                "optimizer": corro.torch.DistributedOptimizer(adam(model)),
            }
        )(made()),
        "reduces gradients by itself",
    ),
    "a loss for each sample": (
        lambda: {"loss": lambda m, b: (m(b["x"]) - b["y"]).square().mean(1)},
        "must return a tensor of one element",
    ),
    "a loss that is a number": (lambda: {"loss": lambda *_: 3}, "a tensor of one element"),
    "no loss": (lambda: {"loss": lambda *_: None}, "a tensor of one element"),
    "a loss without gradients": (
        lambda: {"loss": lambda m, b: loss_of(m, b).detach()},
        "does not depend on",
    ),
    "a batch that is a number": (lambda: {"sample_batch": 3}, "has no tensors"),
    "a batch of scalars": (
        lambda: {"sample_batch": torch.tensor(1.0)},
        "no tensor whose first dim",
    ),
    "an empty batch": (
        lambda: {"sample_batch": with_batch(x=torch.zeros(0, WIDTH), y=torch.zeros(0, WIDTH))},
        "has no samples",
    ),
    "a batch of another width": (
        lambda: {"sample_batch": with_batch(x=torch.zeros(8, 5))},
        r"layers\.0",
    ),
    "pins that are no plan": (
        lambda: {"pins": {"pipeline": 3}},
        "pp 3.*need 3 devices|leave . of . ranks idle|no plan",
    ),
    "an unknown pin": (lambda: {"pins": {"pipelines": 2}}, "pipelines"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_one_line_on_every_rank(case: str) -> None:
    changes, wanted = REFUSED[case]
    with pytest.raises(
        (corro.InvalidArgumentError, corro.ResourceExhaustedError), match=wanted
    ) as e:
        started(**changes())
    lines = str(e.value).splitlines()
    assert len(lines) == 1, lines
    assert len(set(corro.allgather_object(type(e.value).__name__))) == 1
    all_train()


@pytest.mark.parametrize("what", ["samples", "width", "dtype", "structure"])
def test_a_sample_batch_that_differs_between_ranks_is_refused(what: str) -> None:
    if corro.size() == 1:
        pytest.skip("one rank has nobody to differ from")
    batch = batches()[0]
    if corro.rank() == 1:
        batch["y"] = {
            "samples": batch["y"],
            "width": batch["y"][:, :1],
            "dtype": batch["y"].double(),
            "structure": batch["y"],
        }[what]
        if what == "samples":
            batch = {**batch, "x": batch["x"][:5], "y": batch["y"][:5]}
        if what == "structure":
            batch["more"] = torch.zeros(8)
    with pytest.raises(corro.MismatchError, match="sample_batch"):
        started(sample_batch=batch)
    all_train()


def test_a_model_has_one_trainer_at_a_time() -> None:
    model = made()
    optimizer = adam(model)
    trainer = started(model=model, optimizer=optimizer)
    with pytest.raises(corro.InvalidArgumentError, match=r"another trainer.* close\(\)"):
        started(model=model, optimizer=optimizer)
    trainer.close()
    started(model=model, optimizer=optimizer).close()


def test_control_flow_that_values_decide_is_cut_nowhere_and_told() -> None:
    for decide in (Decides, DecidesBetween):
        model = made(decide)
        with pytest.warns(UserWarning, match=f"{decide.where or 'loss'}: reads a number from"):
            trainer = started(model=model)
        with trainer:
            value = trainer.step(batches()[0])
            assert trainer.plan.decisions.shape.pipeline == 1 or decide is Decides
        assert value == value
    all_train()


# --- What goes wrong in a step -------------------------------------------------------------------


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_: Any, *__: Any) -> Any:
        raise KeyError("in backward")


def raises(_: Tensor) -> Tensor:
    raise KeyError("in forward")


WHERE: dict[str, Callable[[Tensor], Tensor]] = {
    "forward": raises,
    "backward": Raises.apply,
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("late", [False, True])
def test_an_error_of_one_rank_ends_the_step_on_all(where: str, late: bool) -> None:
    begun: list[int] = []

    def use(layer: nn.Module, x: Tensor) -> Tensor:
        x = layer(x).tanh()
        own = corro.rank() == (corro.size() - 1 if late else 0)
        if begun and own and not hasattr(x, "fake_mode") and type(x) is Tensor:
            return WHERE[where](x)
        return x

    for pins in plans():
        model = made(lambda: Chain(use))
        begun.clear()
        trainer = started(model=model, pins=pins)
        trainer.step(batches()[0])
        before = [each.detach().clone() for each in model.parameters()]
        begun.append(1)
        with pytest.raises((KeyError, corro.CorroError), match=f"in {where}"):
            trainer.step(batches()[1])
        begun.clear()
        if pins.get("zero") != 3:
            assert all(map(torch.equal, model.parameters(), before)), pins
        all_train()


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        (lambda x: x[:6], "6 samples, rank 0 8"),
        (lambda x: x + 1, "rank 1 gives other values than rank 0"),
    ],
)
def test_batches_that_differ_between_ranks_change_nothing(
    differs: Callable[[Tensor], Tensor], said: str
) -> None:
    if corro.size() == 1:
        pytest.skip("one rank has nobody to differ from")
    for pins in plans():
        trainer = started(pins=pins)
        batch = batches()[0]
        if corro.rank() == 1:
            batch = {**batch, "x": differs(batch["x"]), "y": differs(batch["y"])}
        with pytest.raises(corro.MismatchError, match=said):
            trainer.step(batch)
        all_train()


def test_a_parameter_that_is_thawed_later_is_refused() -> None:
    for pins in plans():
        model = made()
        model.layers[1].requires_grad_(False)
        trainer = started(model=model, pins=pins)
        trainer.step(batches()[0])
        model.layers[1].requires_grad_(True)
        with pytest.raises(corro.CorroError, match=r"layers\.1\.weight.*frozen"):
            trainer.step(batches()[0])
        model.layers[1].requires_grad_(False)
        trainer.step(batches()[0])
        trainer.close()
