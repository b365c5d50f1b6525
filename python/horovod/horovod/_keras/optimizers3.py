"""Optimizers of Keras 3: all back ends' trainers, and custom loops, end in apply()."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from horovod._keras.chosen import BACK_END
from horovod._keras.framework import back_end, keras
from horovod._keras.kept_class import extend
from horovod.common.gradients import GradientReducer

CLASSES: Any = (keras.optimizers.Optimizer,)


class Distributed:
    """What the two kinds have in common. `_reduce` is their class's."""

    _reduce: GradientReducer

    def register_local_var(self, var: Any) -> None:
        """Has gradients of this variable stay this rank's own."""
        self._reduce.keep_local(var)


class _EachStep(Distributed):
    """Reduces before the own class sees the gradients: it clips those of all ranks."""

    _trainable_variables: Sequence[Any]

    @BACK_END.unconverted
    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        """Updates the variables by the gradients of all ranks."""
        given = None if trainable_variables is None else list(trainable_variables)
        variables = self._trainable_variables if given is None else given
        reduced = self._reduce(list(grads), variables)
        return super().apply(reduced, given)  # type: ignore[misc]


class _EachScaledStep(_EachStep):
    """As that, for a LossScaleOptimizer, whose stateless_apply() does not call apply()."""

    def stateless_apply(
        self, optimizer_variables: Any, grads: Sequence[Any], trainable_variables: Any
    ) -> Any:
        """Returns the variables as the gradients of all ranks make them; for JAX."""
        reduced = self._reduce(list(grads), self._trainable_variables)
        return super().stateless_apply(  # type: ignore[misc]
            optimizer_variables, reduced, trainable_variables
        )


class _EveryFewSteps(Distributed):
    """Has Keras add up the gradients of some steps, and reduces the sum before it is clipped.

    Keras averages them. `_factor` makes of that what the user wants.
    """

    _factor: float
    _updated: Sequence[Any]
    _iterations: Any
    gradient_accumulation_steps: int

    @BACK_END.unconverted
    def _backend_apply_gradients(self, grads: Sequence[Any], trainable_variables: Any) -> Any:
        # For _clip_gradients(), which it calls. What Keras sees assigned it takes for the
        # optimizer's own variables.
        object.__setattr__(self, "_updated", trainable_variables)
        return super()._backend_apply_gradients(grads, trainable_variables)  # type: ignore[misc]

    @BACK_END.unconverted
    def _clip_gradients(self, grads: Sequence[Any]) -> Any:
        return super()._clip_gradients(self._of_all_ranks(grads))  # type: ignore[misc]

    def _of_all_ranks(self, grads: Sequence[Any]) -> list[Any]:
        def reduced() -> list[Any]:
            return [self._factor * one for one in self._reduce(grads, self._updated)]

        if back_end != "jax":
            return reduced()
        # There it is called in every step, and Keras forgets the result in all but a few.
        is_update = (self._iterations + 1) % self.gradient_accumulation_steps == 0
        return list(keras.ops.cond(is_update, reduced, lambda: list(grads)))


def distribute(optimizer: Any, reduce: GradientReducer, passes: int, averages: bool) -> Any:
    """Makes the optimizer Distributed, and returns it.

    With the policy mixed_float16 it is in the LossScaleOptimizer that compile() would put around
    it, and the outer one is Distributed: ranks, of which one may have an overflow, have to reduce
    before they look for it.
    """
    if back_end == "tensorflow":
        _keep_from_xla()
    if keras.config.dtype_policy().name == "mixed_float16" and not is_scaling(optimizer):
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    if passes == 1:
        kind = _EachScaledStep if is_scaling(optimizer) else _EachStep
        extend(optimizer, kind, {"_reduce": reduce})
        return optimizer
    _check_can_add_up(optimizer)
    optimizer.gradient_accumulation_steps = passes
    factor = 1.0 if averages else float(passes)
    extend(optimizer, _EveryFewSteps, {"_reduce": reduce, "_factor": factor})
    return optimizer


def is_scaling(optimizer: Any) -> bool:
    """Returns whether it scales losses, and skips steps in which gradients overflow."""
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def check_order(optimizer: Any) -> None:
    """Raises ValueError if a model's optimizer scales losses around a distributed one."""
    if is_scaling(optimizer) and isinstance(optimizer.inner_optimizer, Distributed):
        raise ValueError(
            "a LossScaleOptimizer is around a DistributedOptimizer: ranks without an overflow would"
            " wait for those with one. Use"
            " hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))"
        )


def _check_can_add_up(optimizer: Any) -> None:
    reason = ""
    if is_scaling(optimizer):
        reason = "a LossScaleOptimizer adds up no gradients"
    elif optimizer.built:
        reason = "the optimizer has its variables already, and those of sums are not among them"
    elif optimizer.gradient_accumulation_steps:
        reason = "the optimizer has gradient_accumulation_steps of its own"
    if reason:
        raise ValueError(f"DistributedOptimizer: backward_passes_per_step > 1: {reason}")


def _keep_from_xla() -> None:
    """Has Keras not compile models with a Distributed optimizer by XLA, which has no such ops.

    By default it compiles all that it can, and says so if the user has asked for what it cannot.
    """
    trainer: Any = import_module("keras.src.trainers.trainer")
    own = trainer.model_supports_jit
    if hasattr(own, "__wrapped__"):
        return

    @functools.wraps(own)
    def supports(model: Any) -> bool:
        return not isinstance(getattr(model, "optimizer", None), Distributed) and own(model)

    trainer.model_supports_jit = supports
