"""corro.fit(): trains for some data epochs by a plan, with a progress bar, checkpoints and resume.

parallelize()           on the first batch
the newest checkpoint   if there is one: of any plan, and any number of ranks
each epoch
  each batch            trainer.step(); a checkpoint every so many steps
  validation            the gathered model, each rank on its part of the batches
  a checkpoint
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice, tee
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import corro.torch as ct
from corro import _context, elastic
from corro._context import Group
from corro.errors import CorroError, InvalidArgumentError
from corro.torch.parallel.batches import Batches, Collate, Given, agreed, batches_of, raise_failure
from corro.torch.parallel.entry import parallelize
from corro.torch.parallel.planning import STRATEGIES, raise_first
from corro.torch.parallel.progress import Progress, bar_interval
from corro.torch.parallel.stage import Loss
from corro.torch.parallel.state import TrainerState
from corro.torch.parallel.trainer import Trainer

if TYPE_CHECKING:
    from corro.checkpoint import Checkpointer


@dataclass(frozen=True, slots=True)
class History:
    """What fit() has done, the same on every rank."""

    losses: list[float] = field(default_factory=list)
    """The mean loss of each epoch's samples, while they were trained."""
    validation: list[float] = field(default_factory=list)
    """The mean loss of the validation's samples after each epoch."""
    why: str = ""
    """The plan, and why this one: trainer.why."""


def fit(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    samples: Any,
    batch_size: int | None,
    epochs: int = 1,
    *,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = True,
    seed: int = 0,
    shuffle: bool = True,
    collate: Collate | None = None,
    validation: Any = None,
    scheduler: Any = None,
    progress: bool = True,
    resources: object = None,
    objective: str = "time",
    strategies: Iterable[str] = STRATEGIES,
    pins: Mapping[str, object] | None = None,
    memory_limit: float | str | None = None,
    offload: str | PathLike[str] | None = None,
    max_norm: float | None = None,
    loss_scale: float | str | None = None,
    main_weights: bool = False,
    replan: bool = True,
) -> History:
    """Trains a model by a plan of all ranks, as parallelize() makes it; returns the losses.

    Called by all ranks with the same arguments; blocks. The model is whole on every rank after
    it, as after trainer.close().

    Args:
        model, optimizer, loss: as parallelize() takes them.
        samples: a torch Dataset or a sequence of samples; or an iterable of samples, or of batches,
            which is iterated once an epoch. It gives the same on every rank.
        batch_size: samples of a step, of all ranks together; the last step of an epoch has what is
            left. None: `samples` gives whole batches, as a DataLoader does, of which the first one
            is the largest.
        epochs: how often all samples are trained, also before a resume.
        checkpoint: a folder on a file system that all ranks share; written after each epoch.
        checkpoint_every: written after every so many steps, too.
        resume: goes on from the folder's newest checkpoint, which any plan may have written. False:
            there has to be none.
        seed: the order of samples is a function of it and the epoch; so is what a data set draws.
        shuffle: False: samples come in the order of their numbers, in each epoch.
        collate: makes a batch of a list of samples; default: as torch's DataLoader.
        validation: samples or batches, as `samples`, whose loss is computed after each epoch
            without gradients, by the model in its eval mode.
        scheduler: a torch learning-rate scheduler of the optimizer, stepped after each step.
        progress: draws a bar on rank 0's stderr, if that is a terminal or `corro run`; else prints
            a line after each epoch.
        resources, objective, strategies, pins, memory_limit: as parallelize() takes them.
        offload, max_norm, loss_scale, main_weights, replan: as parallelize() takes them.

    Raises:
        InvalidArgumentError: on every rank: what is wrong, and on which; also where samples differ
            between ranks, or the checkpoint is of another model or other samples.
        CorroError: as parallelize() and trainer.step().
    """
    # A rank that joins an elastic job is alone here: the others train, and are asked in the run.
    group = None if _context.is_outside() else _context.world()
    options = _Options(epochs, checkpoint, checkpoint_every, resume, seed, scheduler, progress)
    raise_first(options.refusal(), group)
    batches = _agreed_batches("samples", samples, batch_size, collate, seed, shuffle, group)
    raise_first(_refusal_of_once("samples", batches, epochs), group)
    checked = (
        None
        if validation is None
        else _agreed_batches("validation", validation, batch_size, collate, seed, False, group)
    )
    raise_first(_refusal_of_once("validation", checked, epochs), group)
    batches, first = _first_of(batches, group)
    trainer = parallelize(
        model,
        optimizer,
        loss,
        first,
        resources,
        objective,
        strategies=strategies,
        pins=pins,
        memory_limit=memory_limit,
        offload=offload,
        max_norm=max_norm,
        loss_scale=loss_scale,
        main_weights=main_weights,
        replan=replan,
    )
    with trainer, _checkpointer(options, group) as checkpointer:
        return _Fitting(trainer, loss, batches, checked, options, checkpointer).run()


@dataclass(frozen=True, slots=True)
class _Options:
    epochs: int
    checkpoint: str | PathLike[str] | None
    checkpoint_every: int | None
    resume: bool
    seed: int
    scheduler: Any
    progress: bool

    def refusal(self) -> str | None:
        if type(self.epochs) is not int or self.epochs < 0:
            return f"fit: epochs: {self.epochs!r} is no number of epochs"
        if type(self.seed) is not int:
            return f"fit: seed: {self.seed!r} is no integer"
        if not isinstance(self.checkpoint, str | PathLike | None):
            return f"fit: checkpoint: a {type(self.checkpoint).__name__} is no path of a folder"
        every = self.checkpoint_every
        if every is not None and (type(every) is not int or every < 1):
            return f"fit: checkpoint_every: {every!r} is no positive number of steps"
        if every is not None and self.checkpoint is None:
            return "fit: checkpoint_every: needs a folder as checkpoint"
        if self.scheduler is not None and not hasattr(self.scheduler, "step"):
            return f"fit: scheduler: a {type(self.scheduler).__name__} has no step()"
        return None


def _agreed_batches(
    what: str,
    source: Any,
    batch_size: int | None,
    collate: Collate | None,
    seed: int,
    shuffle: bool,
    group: Group | None,
) -> Batches:
    batches, failure = None, None
    try:
        batches = batches_of(source, batch_size, collate, seed, shuffle)
    except InvalidArgumentError as error:
        text = str(error)
        failure = f"fit: {'' if text.startswith('batch_size') else what + ': '}{text}"
    raise_first(failure, group)
    assert batches is not None
    if group is None:
        return batches
    counts = [row[0] for row in _context.exchange(group, [batches.total or 0])]
    if len(set(counts)) > 1:
        raise InvalidArgumentError(
            f"fit: {what}: are {counts} on the ranks; all have to give the same"
        )
    return batches


def _refusal_of_once(what: str, batches: Batches | None, epochs: int) -> str | None:
    if epochs > 1 and isinstance(batches, Given) and batches.is_once:
        return (
            f"fit: {what}: is an iterator, which ends after one of {epochs} epochs: give what can"
            " be iterated again, as a list, a data set, a DataLoader"
        )
    return None


def _first_of(batches: Batches, group: Group | None) -> tuple[Batches, Any]:
    """Returns the batches with none missing, and the first of them, which the plan is made for."""
    looked_at = batches
    if isinstance(batches, Given) and batches.is_once:
        one, other = tee(batches.source)
        looked_at, batches = replace(batches, source=one), replace(batches, source=other)
    found = looked_at.epoch(0)
    batch = next(found if group is None else agreed(found, "fit: samples", group), None)
    if batch is None:
        raise InvalidArgumentError("fit: samples: has no samples")
    return batches, batch.content


@contextmanager
def _checkpointer(options: _Options, group: Group | None) -> Iterator[Checkpointer | None]:
    if options.checkpoint is None:
        yield None
        return
    from corro.checkpoint import Checkpointer

    made, failure = None, None
    try:
        made = Checkpointer(options.checkpoint, every=1)
    except CorroError as error:
        failure = f"fit: checkpoint: {error}"
    raise_first(failure, group)
    assert made is not None
    with closing(made):
        yield made


class _Fitting:
    """One call of fit(), after all was checked and planned."""

    def __init__(
        self,
        trainer: Trainer,
        loss: Loss,
        batches: Batches,
        checked: Batches | None,
        options: _Options,
        checkpointer: Checkpointer | None,
    ) -> None:
        self._trainer, self._loss = trainer, loss
        self._batches, self._checked = batches, checked
        self._options, self._checkpointer = options, checkpointer
        self._interval = bar_interval(sys.stderr)
        scheduler = {} if options.scheduler is None else {"scheduler": options.scheduler}
        # What a checkpoint has beside the training's own: where in which epoch it is, of what, and
        # what came out until then.
        self._state = TrainerState(
            trainer,
            epoch=0,
            place=0,
            loss=0.0,
            samples=0,
            losses=[],
            validation=[],
            order=batches.order,
            **scheduler,
        )
        self._saved = -1
        self._has_begun = False

    def run(self) -> History:
        state = self._state
        if self._checkpointer is not None:
            self._load(self._checkpointer)
        elastic.run(self._train)(state)
        return History(list(state.losses), list(state.validation), self._trainer.why)

    def _train(self, state: TrainerState) -> None:
        """Trains what is left, in each epoch of an elastic job."""
        raise_first(self._refusal_to_go_on(), _context.world())
        while state.epoch < self._options.epochs:
            self._train_epoch()
            self._save(is_last=state.epoch == self._options.epochs)
            state._commit_at_times()

    def _refusal_to_go_on(self) -> str | None:
        has_begun, self._has_begun = self._has_begun, True
        if has_begun and isinstance(self._batches, Given) and self._batches.is_once:
            return (
                "fit: samples: is an iterator, which cannot be read again when ranks have come or"
                " gone: give what can be iterated again, as a list, a data set, a DataLoader"
            )
        return None

    def _train_epoch(self) -> None:
        state, trainer, group = self._state, self._trainer, _context.world()
        title = f"epoch {state.epoch + 1}/{self._options.epochs}"
        shows = group.rank() == 0 and self._options.progress
        bar = Progress(title, self._batches.total, self._interval) if shows else None
        batches = self._batches.epoch(state.epoch, state.place)
        for batch in agreed(batches, "fit: samples", group):
            loss = trainer.step(batch.content)
            if self._options.scheduler is not None:
                self._options.scheduler.step()
            step, state.place = batch.place - state.place, batch.place
            state.loss += loss * batch.size
            state.samples += batch.size
            if bar is not None:
                bar.advance(state.place, step, batch.size, state.loss / state.samples)
            every = self._options.checkpoint_every
            if every is not None and trainer.steps % every == 0:
                self._save()
            state._commit_at_times()
        mean = state.loss / max(state.samples, 1)
        checked = self._validate()
        if bar is not None:
            bar.end(state.place, mean, checked)
        state.losses = [*state.losses, mean]
        if checked is not None:
            state.validation = [*state.validation, checked]
        state.epoch, state.place, state.loss, state.samples = state.epoch + 1, 0, 0.0, 0

    def _validate(self) -> float | None:
        """Returns the mean loss of the validation's samples; each rank computes some batches."""
        if self._checked is None:
            return None
        model, group = self._trainer.gather(), _context.world()
        was_training = [each for each in model.modules() if each.training]
        total, failure = torch.zeros(2, dtype=torch.float64), None
        batches = agreed(self._checked.epoch(0), "fit: validation", group)
        model.eval()
        try:
            while round := list(islice(batches, group.size())):
                for batch in round[group.rank() :][:1]:
                    with torch.no_grad():
                        loss = float(self._loss(model, batch.content))
                    total += torch.tensor([loss * batch.size, batch.size])
        except Exception as error:  # The loss is the user's.
            failure = error
            with suppress(Exception):
                deque(batches, 0)  # Other ranks still draw and compute them.
        finally:
            for each in was_training:
                each.training = True
        raise_failure(failure, "fit: validation", group)
        ct.allreduce_(total, ct.Sum, group=group)
        if not total[1]:
            raise InvalidArgumentError("fit: validation: has no samples")
        return float(total[0] / total[1])

    # -- checkpoints ------------------------------------------------------------------------------

    def _load(self, checkpointer: Checkpointer) -> None:
        if not self._options.resume and not _context.is_outside():
            self._refuse_others(checkpointer)
            return
        order = self._state.order
        step = checkpointer.load(self._state)
        if step is None:
            return
        theirs, where = self._state.order, f"{checkpointer.folder}/step-{step}"
        if self._state.place and theirs != order:
            raise InvalidArgumentError(
                f"fit: checkpoint: {where} is in the middle of an epoch of {theirs}, not of {order}"
            )
        self._state.order = order
        self._saved = step

    def _refuse_others(self, checkpointer: Checkpointer) -> None:
        there = Path(checkpointer.folder).glob("step-*")
        names = sorted(each.name for each in there if "." not in each.name)
        failure = None
        if names:
            failure = (
                f"fit: checkpoint: {checkpointer.folder} has checkpoints: resume=True goes on from"
                " them; to begin anew, give another folder"
            )
        raise_first(failure, _context.world())

    def _save(self, *, is_last: bool = False) -> None:
        if self._checkpointer is None:
            return
        if is_last:
            self._checkpointer._save_last(self._state)
        elif self._saved != self._trainer.steps and self._checkpointer.save(self._state):
            self._saved = self._trainer.steps
