"""Elastic training with model.fit(): a state, and the callbacks that keep it."""

from __future__ import annotations

from typing import Any

from horovod._keras.chosen import BACK_END
from horovod._keras.framework import keras
from horovod._keras.training import build_optimizer, synchronize, variables_of, weights_of
from horovod._keras.values import broadcast_variables
from horovod.common.basics import rank
from horovod.common.elastic import ObjectState
from horovod.common.objects import broadcast_object

Logs = dict[str, Any] | None


class KerasState(ObjectState):
    """A state of a model and its optimizer, and of plain attributes: KerasState(model, epoch=0).

    Args:
        model: of Keras; it has its variables.
        optimizer: the model's own, if not given.
        kwargs: attributes, whatever cloudpickle can write.

    Raises:
        ValueError: the model has no variables yet.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        own = getattr(model, "optimizer", None)
        self.model = model
        self.optimizer = own if optimizer is None else optimizer
        if not build_optimizer(model, self.optimizer):
            raise ValueError(
                "KerasState: the model has no variables yet: call model.build(input_shape) first"
            )
        self._save_variables()
        super().__init__(broadcast_object, rank, **kwargs)

    def save(self) -> None:
        synchronize(self.model)
        self._save_variables()
        super().save()

    def restore(self) -> None:
        synchronize(self.model)
        for variable, value in self._values_of_variables:
            variable.assign(value)
        super().restore()

    def reset(self) -> None:
        BACK_END.on_reset()

    def sync(self) -> None:
        synchronize(self.model)
        broadcast_variables(self._variables(), 0)
        self._save_variables()
        super().sync()

    def _save_variables(self) -> None:
        # With random seeds, which are each rank's own: on JAX a step that fails takes them along.
        kept = [*self.model.variables, *variables_of(self.optimizer)]
        self._values_of_variables = [(one, one.numpy()) for one in kept]

    def _variables(self) -> list[Any]:
        return weights_of(self.model, self.optimizer)


class CommitStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Commits the state after so many batches, and after each epoch.

    Args:
        state: what is committed.
        batches_per_commit: how many.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        if batches_per_commit < 1:
            raise ValueError("CommitStateCallback: batches_per_commit must be > 0")
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Logs = None) -> None:
        """Counts anew, as a rank that has just come does."""
        del logs
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Commits, if it is time."""
        del batch, logs
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Commits."""
        del epoch, logs
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps state.batch, the number of the last batch; between epochs it is 0.

    An epoch that goes on after ranks have come or gone has as many batches less.

    Args:
        state: has the attribute `batch`.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.steps_per_epoch: int | None = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Forgets how many batches an epoch has."""
        del logs
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Tells Keras's progress bar how many batches are left."""
        del epoch, logs
        if self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params["steps"]
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Notes which it was."""
        del logs
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """The next epoch begins at its begin."""
        del epoch, logs
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps state.epoch, the number of epochs that are over.

    Keras counts those of a call of fit(), of which there is one more whenever ranks come or go.

    Args:
        state: has the attribute `epoch`.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Logs = None) -> None:
        """Notes with which epoch the call begins."""
        del logs
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Counts it."""
        del logs
        self.state.epoch = self.initial_epoch + epoch + 1
