"""Optimizers of Keras 2: models and scripts have them compute gradients, then apply them.

There are those of Keras 2.11 and newer, and the older, `legacy` ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from corro.tensorflow.ops import unconverted
from horovod._keras.framework import keras
from horovod._keras.kept_class import extend
from horovod.tensorflow.gradients import GradientReducer
from horovod.tensorflow.local_aggregation import LocalAggregation

Pairs = list[tuple[Any, Any]]  # Gradients, with their variables.

CLASSES: Any = (keras.optimizers.Optimizer, keras.optimizers.legacy.Optimizer)


class Distributed:
    """What both have in common. All that begins with `_` is their class's."""

    _HAS_AGGREGATE_GRAD = True
    _reduce: GradientReducer
    _passes: int
    _averages: bool
    iterations: Any

    @property
    def _agg_helper(self) -> LocalAggregation | None:
        """Where gradients are added up; Horovod's name, which scripts use."""
        if self._passes == 1:
            return None
        if "_aggregation" not in self.__dict__:
            # What Keras sees assigned it takes for the optimizer's own variables.
            self.__dict__["_aggregation"] = LocalAggregation(
                self._passes,
                self._reduce,
                averages=self._averages,
                sparse_as_dense=self._reduce.options.sparse_as_dense,
            )
        return self.__dict__["_aggregation"]  # type: ignore[no-any-return]

    def register_local_var(self, var: Any) -> None:
        """Has gradients of this variable stay this rank's own."""
        self._reduce.keep_local(var)

    @unconverted
    def apply_gradients(self, grads_and_vars: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        """Updates the variables, if the passes of a step are complete."""
        pairs = list(grads_and_vars)

        def apply() -> Any:
            return super(Distributed, self).apply_gradients(pairs, *args, **kwargs)  # type: ignore[misc]

        aggregation = self._agg_helper
        if aggregation is None:
            return apply()
        gradients = [gradient for gradient, _ in pairs]
        return aggregation.apply_gradients(gradients, apply, lambda: self.iterations.assign_add(1))

    @unconverted
    def _of_all_ranks(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        aggregation = self._agg_helper
        if aggregation is None:
            return self._reduce(gradients, variables)
        return aggregation.compute_gradients(gradients, variables)

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
