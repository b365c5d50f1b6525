"""corro.fit(): whole epochs, whose losses are those of one process; and what goes on from where."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from parallel_training import adam, alone, gpt, machines, next_token
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import corro
from corro.checkpoint import Checkpointer
from corro.elastic._permutation import Permutation
from corro.torch.parallel import History, Trainer, TrainerState

pytestmark = pytest.mark.usefixtures("job", "one_thread")

BATCH, EPOCHS = 8, 3
TOKENS = torch.randint(0, 75, (22, 17), generator=torch.Generator().manual_seed(3))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that is the same on all ranks."""
    made = tempfile.mkdtemp() if corro.rank() == 0 else None
    path = Path(corro.broadcast_object(made))
    yield path / "run"
    corro.barrier()
    shutil.rmtree(path, ignore_errors=True)


def plans() -> list[dict[str, object]]:
    alike = {"micro_batch": 2}
    return [
        {"tensor": 1, "pipeline": 1, "zero": 0, **alike},
        {"tensor": 1, "pipeline": corro.size(), "zero": 0, **alike},
        {"tensor": 1, "pipeline": 1, "zero": 3, **alike},
        {"tensor": corro.size(), "pipeline": 1, **alike},
    ]


def train(samples: Any = TOKENS, epochs: int = EPOCHS, **options: Any) -> History:
    options = {"batch_size": BATCH, "resources": machines(), "progress": False, **options}
    model = options.pop("model", None) or gpt(0.2)
    optimizer, loss = adam(model), options.pop("loss", next_token)
    if options.pop("decays", False):
        options["scheduler"] = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    return corro.fit(model, optimizer, loss, samples, epochs=epochs, **options)


def same(found: History, expected: History) -> None:
    assert found.losses == pytest.approx(expected.losses, abs=1e-5)
    assert found.validation == pytest.approx(expected.validation, abs=1e-5)


def test_every_plan_trains_as_one_process() -> None:
    orders = [Permutation(len(TOKENS), 7, epoch).indices(range(22)) for epoch in range(EPOCHS)]
    assert sorted(orders[0]) == list(range(22))
    steps = [TOKENS[part] for order in orders for part in torch.tensor(order).split(BATCH)]
    losses, whole = alone(gpt(0.2), next_token, steps, len)
    weights = [len(each) for each in steps[:3]]
    means = [
        sum(map(float.__mul__, losses[at : at + 3], map(float, weights))) / sum(weights)
        for at in (0, 3, 6)
    ]
    last = next_token(whole.eval(), TOKENS[:10]).item()
    for pins in plans():
        history = train(validation=TOKENS[:10], seed=7, pins=pins)
        assert history.losses == pytest.approx(means, abs=1e-5), pins
        assert len(history.validation) == EPOCHS
        assert history.validation[-1] == pytest.approx(last, abs=1e-5)
        assert "stage 0: " in history.why


@dataclass
class Augmented:
    """Draws with every generator that users have; fails at the end if it was asked that often."""

    asked_until_failure: int = -1

    def __len__(self) -> int:
        return len(TOKENS)

    def __getitem__(self, number: int) -> Tensor:
        self.asked_until_failure -= 1
        if self.asked_until_failure == 0:
            raise KeyError("no such file")
        drawn = int(torch.randint(0, 20, ())) + random.randrange(20) + numpy.random.randint(20)
        return (TOKENS[number] + drawn) % 75


@pytest.mark.parametrize(("first", "second"), [(1, 0), (2, 1), (1, 2), (3, 2)])
def test_any_plan_goes_on_in_the_middle_of_an_epoch(folder: Path, first: int, second: int) -> None:
    other, one = plans()[first], plans()[second]
    whole = train(Augmented(), validation=TOKENS[:5], pins=one)
    stopped = Augmented(BATCH + 22 + 20)  # The first batch is made once more, for its shape.
    common: dict[str, Any] = {"checkpoint": folder, "validation": TOKENS[:5]}
    with pytest.raises(KeyError, match="no such file"):
        train(stopped, checkpoint_every=1, pins=other, **common)
    names = sorted(each.name for each in folder.iterdir() if "." not in each.name)
    # A checkpoint is left out while the one before is written, which takes steps on a busy machine.
    assert names[-1] in ("step-3", "step-4", "step-5")
    model = gpt(0.2)
    torch.manual_seed(99 + corro.rank())  # Dropout goes on as it was drawn before.
    same(train(Augmented(), pins=one, model=model, **common), whole)
    same(train(Augmented(), pins=other, **common), whole)  # There is nothing left to be done.


def test_it_goes_on_for_more_epochs_with_the_schedule(folder: Path) -> None:
    whole = train(decays=True)
    for epochs, pins in zip((1, 2, 3), (*plans(), *plans()), strict=False):
        history = train(epochs=epochs, pins=pins, checkpoint=folder, decays=True)
    same(history, whole)
    assert history.losses[-1] > train().losses[-1] + 1e-3  # It does decay.
    refused("does not fit: it has attributes that are not here: scheduler", checkpoint=folder)


class Counting(torch.optim.AdamW):
    """Has a state that belongs to no parameter."""

    def step(self, *_: Any, **__: Any) -> None:  # type: ignore[override]
        super().step()
        self.state.setdefault("all", {"count": 0})["count"] += 1


def test_a_loop_of_ones_own_is_saved_and_loaded(folder: Path) -> None:
    def started(pins: dict[str, object]) -> tuple[Trainer, TrainerState, Checkpointer]:
        model = gpt(0.2)
        optimizer = Counting(model.parameters(), 1e-3)
        trainer = corro.parallelize(
            model, optimizer, next_token, TOKENS[:BATCH], machines(), pins=pins
        )
        state = TrainerState(trainer, note="")
        checkpointer = Checkpointer(folder, every=2)
        checkpointer.load(state)
        return trainer, state, checkpointer

    one, other, *_ = plans()  # No ZeRO, since this optimizer may do anything.
    trainer, state, checkpointer = started(one)
    state.note = "hello"
    for _ in range(2):
        trainer.step(TOKENS[:BATCH])
        checkpointer.save(state)
    checkpointer.close()
    expected = trainer.step(TOKENS[:BATCH])  # Saving has not changed what comes.
    trainer.close()
    trainer, state, checkpointer = started(other)
    assert (trainer.steps, state.note) == (2, "hello")
    assert trainer.optimizer.state.pop("all") == {"count": 2}
    held, every = len(trainer.optimizer.state), len(list(trainer.model.parameters()))
    assert (held < every) == (corro.size() > 1)  # Of its own stage's alone.
    assert trainer.step(TOKENS[:BATCH]) == pytest.approx(expected, abs=1e-5)
    trainer.close()
    checkpointer.close()


def test_loaders_and_iterators_give_batches(folder: Path) -> None:
    def loader() -> DataLoader[Any]:
        return DataLoader(TensorDataset(TOKENS), BATCH, shuffle=True)

    def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
        return next_token(model, batch[0])

    torch.manual_seed(corro.rank())  # Loaders shuffle alike although ranks draw differently.
    whole = train(loader(), 2, batch_size=None, loss=loss)
    assert whole.losses[1] < whole.losses[0]
    torch.manual_seed(3 + corro.rank())
    train(loader(), 1, batch_size=None, loss=loss, checkpoint=folder)
    same(train(loader(), 2, batch_size=None, loss=loss, checkpoint=folder), whole)

    listed = train(list(TOKENS.split(BATCH)), 1, batch_size=None)
    same(train(iter(TOKENS.split(BATCH)), 1, batch_size=None), listed)
    same(train((each for each in TOKENS), 1), listed)
    same(train(TOKENS, 1, shuffle=False), listed)


def refused(text: str, samples: Any = TOKENS, **options: Any) -> None:
    with pytest.raises(corro.CorroError, match=text) as raised:
        train(samples, **options)
    assert "\n" not in str(raised.value)


def test_bad_input_is_one_line_on_every_rank(folder: Path) -> None:
    last = corro.rank() == corro.size() - 1
    refused("fit: batch_size: 0 is no positive integer", batch_size=0)
    refused("fit: epochs: -1 is no number of epochs", epochs=-1)
    refused("fit: seed: 'x' is no integer", seed="x")
    refused("fit: samples: a dict is no data set", {"x": TOKENS})
    refused("fit: samples: a int has neither", 3)
    refused("fit: samples: has no samples", [])
    refused("fit: samples: has no samples", iter([]), epochs=1)
    refused("fit: batch_size: has to be None for a DataLoader", DataLoader([1]))
    refused("fit: samples: is an iterator, which ends after one of 3 epochs", iter(TOKENS))
    refused("fit: validation: is an iterator", validation=iter(TOKENS))
    refused("fit: validation: has no samples", validation=[])
    refused("fit: checkpoint: a int is no path", checkpoint=3)
    refused("fit: checkpoint_every: needs a folder", checkpoint_every=3)
    refused("fit: checkpoint_every: 0 is no positive", checkpoint_every=0, checkpoint=folder)
    refused("loss: must be a function", loss=3)
    refused("fit: scheduler: a int has no step", scheduler=3)
    folder.parent.joinpath("file").touch()
    refused("fit: checkpoint: .*file", checkpoint=folder.parent / "file")
    if corro.size() > 1:
        refused("fit: epochs: -1 is no", epochs=-1 if last else 1)
        refused(r"fit: samples: are \[.*21\] on the ranks", TOKENS[last:])
        refused("samples: the first batch of rank .* is not that of rank 0", TOKENS + last)
        part = TOKENS.split(BATCH)
        refused(
            f"samples: end after 2 batches on rank {corro.size() - 1} alone",
            iter(part[:2] if last else part),
            epochs=1,
            batch_size=None,
        )


def test_a_data_set_that_fails_on_one_rank_stops_all() -> None:
    last = corro.size() - 1
    is_here = corro.rank() == last
    text = "no such file" if is_here else f"rank {last}: fit: samples: KeyError: 'no such file'"
    with pytest.raises(KeyError if is_here else corro.InvalidArgumentError, match=text):
        train(Augmented(BATCH + 10 if is_here else -1))


def test_a_loss_that_fails_in_the_validation_stops_all() -> None:
    last = corro.size() - 1
    is_here = corro.rank() == last

    def fails(model: nn.Module, tokens: Tensor) -> Tensor:
        if not model.training and is_here:
            raise KeyError("my mistake")
        return next_token(model, tokens)

    text = "my mistake" if is_here else f"rank {last}: fit: validation: KeyError: 'my mistake'"
    with pytest.raises(KeyError if is_here else corro.InvalidArgumentError, match=text):
        train(loss=fails, validation=TOKENS.repeat(2, 1))


def test_a_checkpoint_of_something_else_is_refused(folder: Path) -> None:
    with pytest.raises(KeyError):
        train(Augmented(BATCH + 10), checkpoint=folder, checkpoint_every=1)
    refused(
        "step-1 is in the middle of an epoch of 22 samples.*not of 21",
        TOKENS[1:],
        checkpoint=folder,
    )
    refused("step-1 is in the middle .* by seed 0, not of .* by seed 1", seed=1, checkpoint=folder)
    refused("step-1 does not fit", model=gpt(tied=False), checkpoint=folder)
    refused("has checkpoints: resume=True goes on", resume=False, checkpoint=folder)
