"""Elastic training of TensorFlow's scripts: corro run -np 3 --min-np 2 python train.py

state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0)

@hvd.elastic.run
def train(state):
    ...
    state.commit()

train(state)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import tensorflow as tf

from corro.tensorflow.causes import cause_of
from horovod.common import basics
from horovod.common.basics import rank
from horovod.common.elastic import ObjectState, State, run_fn
from horovod.common.exceptions import raised_as_horovods
from horovod.tensorflow.functions import broadcast_object, broadcast_variables

__all__ = ["ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a training function go on when ranks come or go: a decorator.

    Its first argument is a state. When ranks come or go, that goes back to its last commit(), all
    ranks take rank 0's, and the function is called again. Functions and graphs that it has made
    stay as they are.
    """

    @functools.wraps(func)
    def train(state: State, *args: Any, **kwargs: Any) -> Any:
        with _errors_as_horovods():
            return func(state, *args, **kwargs)

    return run_fn(train, basics.enter_epoch)


@contextmanager
def _errors_as_horovods() -> Iterator[None]:
    """Raises what ops tell of the other ranks as Horovod's errors."""
    try:
        yield
    except tf.errors.OpError as error:
        cause = cause_of(error)
        if cause is None:
            raise
        with raised_as_horovods():
            raise cause from error


class _Variables(Protocol):
    """What is done with a state's variables."""

    def save(self) -> None:
        """Copies their values."""

    def restore(self) -> None:
        """Gives them back what they had at the last save()."""

    def sync(self) -> None:
        """Gives them the values of rank 0."""


class _Eager:
    """Variables that have values: those of TensorFlow, and those that Keras puts around them."""

    def __init__(self, variables: Callable[[], Sequence[Any]]) -> None:
        """`variables` returns them, the same ones on every rank; Keras may make more of them."""
        self._variables = variables
        self.save()

    def save(self) -> None:
        self._saved = [(variable, variable.numpy()) for variable in self._variables()]

    def restore(self) -> None:
        for variable, value in self._saved:
            variable.assign(value)

    def sync(self) -> None:
        broadcast_variables(self._variables(), root_rank=0)


class _InSession:
    """Variables of a graph, with the ops for all of it, made once: names of ops count."""

    def __init__(self, variables: Sequence[Any], session: Any) -> None:
        self._known = list(variables)
        self._session = session
        with session.graph.as_default():
            self._values = [tf.convert_to_tensor(one) for one in self._known]
            self._given = [
                tf.compat.v1.placeholder(value.dtype, value.shape) for value in self._values
            ]
            assigned = [
                tf.compat.v1.assign(one, given)
                for one, given in zip(self._known, self._given, strict=True)
            ]
            self._assign = tf.group(*assigned)
            self._broadcast = broadcast_variables(self._known, root_rank=0)
        self.save()

    def save(self) -> None:
        self._saved = self._session.run(self._values)

    def restore(self) -> None:
        self._session.run(self._assign, dict(zip(self._given, self._saved, strict=True)))

    def sync(self) -> None:
        self._session.run(self._broadcast)


class _TensorFlowsState(ObjectState):
    """A state of variables, and of plain attributes."""

    def __init__(self, variables: _Variables, **kwargs: Any) -> None:
        basics.world()  # Raises ValueError before init().
        self._variables = variables
        super().__init__(broadcast_object, rank, **kwargs)

    def save(self) -> None:
        self._variables.save()
        super().save()

    def restore(self) -> None:
        self._variables.restore()
        super().restore()

    def sync(self) -> None:
        with _errors_as_horovods():
            self._variables.sync()
            self._variables.save()
            super().sync()


class TensorFlowState(_TensorFlowsState):
    """A state of variables and attributes: `TensorFlowState(variables, batch=0)`.

    Args:
        variables: the same on every rank, in the same order; those of the graph if not given.
        session: runs what is in a graph; the default session if not given.
        kwargs: attributes, whatever cloudpickle can write.

    Raises:
        ValueError: there are no variables, or a graph has no session.
    """

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any) -> None:
        known = list(variables or tf.compat.v1.global_variables())
        if not known:
            raise ValueError("TensorFlowState: no variables are given, and the graph has none")
        self.variables = known
        self.session = session
        if tf.executing_eagerly():
            super().__init__(_Eager(lambda: known), **kwargs)
            return
        self.session = session or tf.compat.v1.get_default_session()
        if self.session is None:
            raise ValueError("TensorFlowState: variables of a graph need the argument `session`")
        super().__init__(_InSession(known, self.session), **kwargs)


class TensorFlowKerasState(_TensorFlowsState):
    """A state of a model of Keras and its optimizer: `TensorFlowKerasState(model, batch=0)`.

    Args:
        model: has been built.
        optimizer: that of the model, if not given.
        backend: tensorflow.compat.v1.keras.backend, where a session runs the model.
        kwargs: attributes, whatever cloudpickle can write.

    Raises:
        ValueError: the model has not been built, or there is no optimizer.
    """

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any
    ) -> None:
        if not getattr(model, "built", True):
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer: Any = getattr(model, "optimizer", None) if optimizer is None else optimizer
        self.backend = backend
        if self.optimizer is None:
            raise ValueError(
                "TensorFlowKerasState: the model has no optimizer: compile it, or give `optimizer`"
            )
        _build(self.optimizer, model.trainable_variables)
        if tf.executing_eagerly():
            super().__init__(_Eager(self._of_both), **kwargs)
            return
        if backend is None:
            raise ValueError(
                "TensorFlowKerasState: a model in a graph needs the argument `backend`"
            )
        super().__init__(_InSession(self._of_both(), backend.get_session()), **kwargs)

    def _of_both(self) -> list[Any]:
        of_optimizer = self.optimizer.variables  # A list, or a function in older versions.
        if callable(of_optimizer):
            of_optimizer = of_optimizer()
        return [*self.model.variables, *of_optimizer]


def _build(optimizer: Any, variables: Sequence[Any]) -> None:
    """Makes an optimizer's variables before its first step: a new rank has to have them, too."""
    if hasattr(optimizer, "build"):
        if not getattr(optimizer, "built", False):
            optimizer.build(variables)
    elif hasattr(optimizer, "_create_all_weights"):  # Of Keras before 2.11.
        optimizer._create_all_weights(variables)
