"""Gradients that are added up over several backward passes, and reduced once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from corro.tensorflow.ops import unconverted

Reduce = Callable[[Sequence[Any], Sequence[Any]], list[Any]]


class LocalAggregation:
    """The sums of one optimizer: eager, in a tf.function, or in one graph of tf.compat.v1.

    There its variables are local ones, which tf.compat.v1.local_variables_initializer() and
    monitored sessions initialize.

    Args:
        passes: how many backward passes are one step.
        reduce: makes of gradients, with their variables, those of all ranks.
        averages: the sum over the passes is divided by their number.
        sparse_as_dense: makes tf.IndexedSlices tensors first.

    Attributes:
        counter: a variable, of how many passes of the next step there were; None before the first.

    Raises:
        ValueError: a step would have no pass.
    """

    def __init__(
        self, passes: int, reduce: Reduce, *, averages: bool = False, sparse_as_dense: bool = False
    ) -> None:
        if passes < 1:
            raise ValueError("backward_passes_per_step must be > 0")
        self._passes = passes
        self._reduce = reduce
        self._averages = averages
        self._sparse_as_dense = sparse_as_dense
        self.counter: Any = None
        self._sums: dict[int, Any] = {}  # By the gradient's number in the list.

    @unconverted
    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Adds the gradients of a pass; returns, in the last pass of a step, what all ranks have.

        In the others it returns what was given, which is not to be applied.

        Raises:
            ValueError: there are tf.IndexedSlices, and sparse_as_dense is not set; or a gradient
                that was None in the first pass is there now.
        """
        given = [self._dense(gradient) for gradient in gradients]
        there = [i for i, gradient in enumerate(given) if gradient is not None]
        self._make_sums(there, given, variables)
        added = [self._sums[i].assign_add(given[i]) for i in there]
        with tf.control_dependencies(added):
            count = self.counter.assign_add(1)
        with tf.control_dependencies([count]):
            is_last = tf.equal(self.counter, self._passes)
        results = tf.cond(
            is_last,
            lambda: self._of_all_ranks(there, variables),
            lambda: [tf.identity(given[i]) for i in there],
        )
        # What cond() makes of a list of one is one tensor.
        results = results if isinstance(results, (list, tuple)) else [results]
        for i, result in zip(there, results, strict=True):
            given[i] = result
        return given

    @unconverted
    def apply_gradients(
        self, gradients: Sequence[Any], apply: Callable[[], Any], skip: Callable[[], Any]
    ) -> Any:
        """Calls `apply` if a step is complete, else `skip`; in a graph, returns the op that does.

        Args:
            gradients: what compute_gradients() has returned.
            apply: applies them.
            skip: does what a pass has to do that applies nothing.
        """

        def ran(function: Callable[[], Any]) -> Any:
            done = function()
            with tf.control_dependencies([] if done is None else [done]):
                return tf.constant(True)

        with tf.control_dependencies([one for one in gradients if one is not None]):
            is_complete = tf.equal(self.counter, 0)
        return tf.group(tf.cond(is_complete, lambda: ran(apply), lambda: ran(skip)))

    def _of_all_ranks(self, there: Sequence[int], variables: Sequence[Any]) -> list[Any]:
        """Returns the reduced sums, and begins anew."""
        sums = [self._sums[i].read_value() for i in there]
        reduced = self._reduce(sums, [variables[i] for i in there])
        if self._averages:
            reduced = [one / tf.cast(self._passes, one.dtype) for one in reduced]
        with tf.control_dependencies(sums + reduced):
            cleared = [self._sums[i].assign(tf.zeros_like(self._sums[i])) for i in there]
            cleared.append(self.counter.assign(0))
        with tf.control_dependencies(cleared):
            return [tf.identity(one) for one in reduced]

    def _make_sums(
        self, there: Sequence[int], gradients: Sequence[Any], variables: Sequence[Any]
    ) -> None:
        if self.counter is None:
            self.counter = local_zeros([], tf.int64)
            for i in there:
                shape = gradients[i].shape
                known = shape if shape.is_fully_defined() else variables[i].shape
                self._sums[i] = local_zeros(known, gradients[i].dtype)
        if there != list(self._sums):
            raise ValueError(
                "backward_passes_per_step > 1: every pass has to have gradients of the same"
                f" variables; numbers {list(self._sums)} had some in the first, and numbers"
                f" {there} have some now"
            )

    def _dense(self, gradient: Any) -> Any:
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        if not self._sparse_as_dense:
            raise ValueError(
                "IndexedSlices are not supported when `backward_passes_per_step` > 1 and"
                " `sparse_as_dense` is False."
            )
        return tf.convert_to_tensor(gradient)


def local_zeros(shape: Any, dtype: Any) -> Any:
    """Returns a variable of this process alone, which is in no checkpoint of a session."""
    with tf.init_scope():  # A tf.function makes no variables when it is traced again.
        return tf.compat.v1.Variable(
            lambda: tf.zeros(shape, dtype),
            trainable=False,
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
            use_resource=True,
        )
