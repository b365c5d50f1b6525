"""What model.fit() calls: all ranks begin alike, see the same metrics, and warm up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from horovod._keras import objects
from horovod._keras.framework import keras
from horovod._keras.optimizer import check_order, warn_if_nothing_reduces
from horovod._keras.training import (
    build_optimizer,
    learning_rate_of,
    scale_momentum,
    set_learning_rate,
    synchronize,
    weights_of,
)
from horovod._keras.values import broadcast_variables
from horovod.common import basics

Logs = dict[str, Any] | None

# Who is in a call of fit(), which is known by its History: Keras tells a callback of no other.
_present: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()


def _enter(callback: Any, is_only_one: bool) -> None:
    """Raises ValueError if fit() was given the callback twice.

    Args:
        callback: who asks.
        is_only_one: another one of its class counts, too.
    """
    history = getattr(callback.model, "history", None)
    others = _present.setdefault(history, []) if history is not None else []
    if any(one is callback or (is_only_one and type(one) is type(callback)) for one in others):
        raise ValueError(
            f"{type(callback).__name__} is given twice: callbacks=[...] of fit() needs it once"
        )
    others.append(callback)


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives the model's and its optimizer's variables the values of a rank, when training begins.

    So all ranks begin alike, whether they make their variables anew or one has them from a file.
    Where Keras makes variables in the first batch, it is at that batch's end.

    Args:
        root_rank: whose values.
        device: as Horovod takes it; nothing differs.
        local_variables: which stay each rank's own: a variable, or several.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        del device
        if local_variables is None:
            local_variables = []
        elif not isinstance(local_variables, list | tuple | set):
            local_variables = [local_variables]
        self.root_rank = root_rank
        self.broadcast_done = False
        self._local = {id(variable): variable for variable in local_variables}

    def register_local_var(self, var: Any) -> None:
        """Has a variable stay this rank's own."""
        self._local[id(var)] = var

    def on_train_begin(self, logs: Logs = None) -> None:
        """Sends them, if all ranks have made theirs."""
        del logs
        _enter(self, is_only_one=True)
        check_order(self.model.optimizer)
        warn_if_nothing_reduces(self.model)
        self.broadcast_done = False
        if objects.all_ranks_say(build_optimizer(self.model, self.model.optimizer)):
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Sends them, if it was not done."""
        del batch, logs
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        synchronize(self.model)
        variables = weights_of(self.model, self.model.optimizer)
        shared = [variable for variable in variables if id(variable) not in self._local]
        broadcast_variables(shared, self.root_rank)
        self.broadcast_done = True


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Averages the metrics of an epoch over all ranks.

    It has to come before callbacks that use them, as ReduceLROnPlateau does.

    Args:
        device: as Horovod takes it; nothing differs.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        del device

    def on_train_begin(self, logs: Logs = None) -> None:
        """Nothing but a check."""
        del logs
        _enter(self, is_only_one=True)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Replaces them; ValueError on all ranks if they do not have the same ones."""
        del epoch
        if logs is not None:
            logs.update(objects.averaged("MetricAverageCallback", logs))


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate to a multiple of the initial one, from one epoch to another.

    Args:
        initial_lr: the learning rate that is multiplied.
        multiplier: of the epoch, as a function; or its number to the power of the epochs since
            `start_epoch`.
        start_epoch: the first epoch.
        end_epoch: the epoch after the last one; None: there is no last one.
        staircase: once an epoch, which is a whole number; otherwise in each batch, and the epoch
            is that and the part of it that is over.
        momentum_correction: what an optimizer has in its momentum is scaled with it.
        steps_per_epoch: how many batches an epoch has, if Keras cannot know.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr = initial_lr
        self.multiplier = _function_of(multiplier, start_epoch)
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        """Looks up how many batches an epoch has, if that is needed."""
        del logs
        _enter(self, is_only_one=isinstance(self, LearningRateWarmupCallback))
        if self.staircase or self.steps_per_epoch:
            return
        self.steps_per_epoch = self.params.get("steps")
        if not self.steps_per_epoch:
            raise ValueError(
                f"{type(self).__name__}: Keras does not know how many batches an epoch has: pass"
                " steps_per_epoch"
            )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Notes which it is."""
        del logs
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Sets the learning rate, if it is time."""
        del logs
        if self.current_epoch < self.start_epoch:
            return
        if self.end_epoch is not None and self.current_epoch >= self.end_epoch:
            return
        if self.staircase:
            if batch == 0:
                self._adjust(self.current_epoch)
        else:
            assert self.steps_per_epoch
            self._adjust(self.current_epoch + batch / self.steps_per_epoch)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Adds the learning rate to the epoch's metrics."""
        del epoch
        if logs is not None:
            logs["lr"] = learning_rate_of(self.model.optimizer)

    def _adjust(self, epoch: float) -> None:
        synchronize(self.model)
        optimizer = self.model.optimizer
        before = learning_rate_of(optimizer)
        new = self.initial_lr * self.multiplier(epoch)
        set_learning_rate(optimizer, new)
        if self.momentum_correction and before and new != before:
            scale_momentum(optimizer, new / before)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Has the learning rate grow from that of one rank to the initial one, over some epochs.

    As "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (arXiv:1706.02677) has it.

    Args:
        initial_lr: the learning rate at the end, which is for all ranks together.
        warmup_epochs: how many epochs.
        momentum_correction: as LearningRateScheduleCallback's.
        steps_per_epoch: as LearningRateScheduleCallback's.
        verbose: whether rank 0 says when it is over.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            ranks = basics.size()
            # With the batch that begins: so an epoch ends with a round number.
            epoch += 1.0 / (self.steps_per_epoch or 1)
            return (epoch * (ranks - 1) / warmup_epochs + 1) / ranks

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """As LearningRateScheduleCallback's; says when it is over."""
        super().on_epoch_end(epoch, logs)
        if self.end_epoch == epoch + 1 and self.verbose > 0 and basics.rank() == 0:
            reached = learning_rate_of(self.model.optimizer)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {reached:g}.")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Saves the model when it is the best one; rank 0 does.

    Args:
        monitor: the metric that says so.
        verbose: as keras.callbacks.ModelCheckpoint's, and so are the next three.
        save_weights_only: the weights alone.
        mode: whether less or more is better.
        save_freq: when it is looked at.
        filepath: where; as an attribute it may be set later.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: str | None = None,
    ) -> None:
        later = (
            "later.weights.h5" if save_weights_only else "later.keras"
        )  # Keras looks at its end.
        super().__init__(
            filepath=filepath or later,
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        if filepath is None:
            self.filepath = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """As ModelCheckpoint's; ValueError if nobody has said where to."""
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint: nobody has said where to: pass filepath")
        super().on_train_begin(logs)

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        if basics.rank() == 0:
            super()._save_model(*args, **kwargs)


def _function_of(
    multiplier: float | Callable[[float], float], start_epoch: int
) -> Callable[[float], float]:
    if callable(multiplier):
        return multiplier
    base = multiplier
    return lambda epoch: base ** (epoch - start_epoch)
