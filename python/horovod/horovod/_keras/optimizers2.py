"""Optimizers of Keras 2: models and scripts have them compute gradients, then apply them.

There are those of Keras 2.11 and newer, and the older, `legacy` ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from corro.tensorflow.ops import unconverted
from horovod._keras.framework import keras
from horovod._keras.gradients import GradientReducer
from horovod._keras.kept_class import extend

Pairs = list[tuple[Any, Any]]  # Gradients, with their variables.

CLASSES: Any = (keras.optimizers.Optimizer, keras.optimizers.legacy.Optimizer)


class Aggregation:
    """Adds up the gradients of some passes of one optimizer.

    Attributes:
        counter: how many passes of the next step there were.
    """

    def __init__(self, reduce: GradientReducer, passes: int, averages: bool) -> None:
        self._reduce = reduce
        self._passes = passes
        self._factor = 1.0 / passes if averages else 1.0
        with tf.init_scope():
            self.counter = tf.Variable(0, trainable=False, name="passes")
        self._sums: list[Any] = []

    def added(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns those of all ranks in the last pass of a step; in others, what was given."""
        there = [i for i, gradient in enumerate(gradients) if gradient is not None]
        given = [self._dense(gradients[i]) for i in there]
        if not self._sums:
            with tf.init_scope():
                self._sums = [
                    tf.Variable(tf.zeros(variables[i].shape, one.dtype), trainable=False)
                    for i, one in zip(there, given, strict=True)
                ]
        for total, one in zip(self._sums, given, strict=True):
            total.assign_add(one)
        count = self.counter.assign_add(1)
        of_all = tf.cond(
            tf.equal(count, self._passes),
            lambda: self._finished([variables[i] for i in there]),
            lambda: [tf.identity(one) for one in given],
        )
        results = list(gradients)
        # What cond() makes of a list of one is one tensor.
        for i, one in zip(there, of_all if isinstance(of_all, list) else [of_all], strict=True):
            results[i] = one
        return results

    def is_complete(self) -> Any:
        """Returns whether what added() has returned is to be applied."""
        return tf.equal(self.counter, 0)

    def _finished(self, variables: Sequence[Any]) -> list[Any]:
        reduced = self._reduce([total.read_value() for total in self._sums], variables)
        for total in self._sums:
            total.assign(tf.zeros_like(total))
        self.counter.assign(0)
        return [one * tf.cast(self._factor, one.dtype) for one in reduced]

    def _dense(self, gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            if not self._reduce.how.sparse_as_dense:
                raise ValueError(
                    "IndexedSlices are not supported when `backward_passes_per_step` > 1 and"
                    " `sparse_as_dense` is False."
                )
            return tf.convert_to_tensor(gradient)
        return gradient


class Distributed:
    """What both have in common. All that begins with `_` is their class's."""

    _HAS_AGGREGATE_GRAD = True
    _reduce: GradientReducer
    _passes: int
    _averages: bool
    iterations: Any

    @property
    def _agg_helper(self) -> Aggregation | None:
        """Where gradients are added up; Horovod's name, which scripts use."""
        if self._passes == 1:
            return None
        if "_aggregation" not in self.__dict__:
            made = Aggregation(self._reduce, self._passes, self._averages)
            self.__dict__["_aggregation"] = made
        return self.__dict__["_aggregation"]  # type: ignore[no-any-return]

    def register_local_var(self, var: Any) -> None:
        """Has gradients of this variable stay this rank's own."""
        self._reduce.keep_local(var)

    @unconverted
    def apply_gradients(self, grads_and_vars: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        """Updates the variables, if the passes of a step are complete."""
        apply: Callable[..., Any] = super().apply_gradients  # type: ignore[misc]
        aggregation = self._agg_helper
        if aggregation is None:
            return apply(grads_and_vars, *args, **kwargs)
        pairs = list(grads_and_vars)

        def ran() -> Any:
            apply(pairs, *args, **kwargs)
            return tf.constant(True)

        def skipped() -> Any:
            self.iterations.assign_add(1)
            return tf.constant(False)

        return tf.cond(aggregation.is_complete(), ran, skipped)

    @unconverted
    def _of_all_ranks(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        aggregation = self._agg_helper
        if aggregation is None:
            return self._reduce(gradients, variables)
        return aggregation.added(gradients, variables)

    def _pairs_of_all_ranks(self, pairs: Pairs) -> Pairs:
        gradients, variables = [one for one, _ in pairs], [one for _, one in pairs]
        return list(zip(self._of_all_ranks(gradients, variables), variables, strict=True))


class _Newer(Distributed):
    """Of Keras 2.11 and newer."""

    @unconverted
    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Pairs:
        """Returns the gradients of all ranks, with their variables."""
        return self._pairs_of_all_ranks(super().compute_gradients(loss, var_list, tape))  # type: ignore[misc]

    @unconverted
    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> Pairs:
        del grad_loss
        return self.compute_gradients(loss, var_list, tape)


class _Legacy(Distributed):
    """Older ones."""

    @unconverted
    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> Pairs:
        own = super()._compute_gradients(loss, var_list, grad_loss, tape)  # type: ignore[misc]
        return self._pairs_of_all_ranks(own)

    @unconverted
    def get_gradients(self, loss: Any, params: Sequence[Any]) -> list[Any]:
        """Returns the gradients of all ranks; for graphs of TensorFlow 1."""
        return self._of_all_ranks(super().get_gradients(loss, params), params)  # type: ignore[misc]


def distribute(optimizer: Any, reduce: GradientReducer, passes: int, averages: bool) -> Any:
    """Makes the optimizer Distributed, and returns it."""
    is_legacy = isinstance(optimizer, keras.optimizers.legacy.Optimizer)
    attributes = {"_reduce": reduce, "_passes": passes, "_averages": averages}
    extend(optimizer, _Legacy if is_legacy else _Newer, attributes)
    return optimizer


def check_order(optimizer: Any) -> None:
    """Here a LossScaleOptimizer around a distributed one is right: it looks at what is reduced."""
