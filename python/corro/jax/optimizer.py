"""An optimizer of Optax's that averages the gradients of all ranks before it uses them."""

from __future__ import annotations

from typing import Any

from corro._context import Group
from corro._frameworks import check_framework
from corro._reduce_op import Average, ReduceOp
from corro.errors import InvalidArgumentError
from corro.jax.compression import CastCodec, Compression
from corro.jax.verbs import grouped_allreduce

check_framework("corro.jax.DistributedOptimizer", "optax", "Optax", "Optax", (0, 2))

import optax  # noqa: E402


class _Reducing(optax.GradientTransformationExtraArgs):  # type: ignore[misc]
    """What DistributedOptimizer returns."""


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    op: ReduceOp = Average,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
    compression: CastCodec | None = Compression.none,
    backward_passes_per_step: int = 1,
) -> Any:
    """Returns a gradient transformation whose update() reduces all gradients first, as one unit.

    Its state is the optimizer's, or optax.MultiSteps' with several passes a step. Used inside of
    jit as outside.

    Args:
        optimizer: one of Optax's gradient transformations.
        op: the reduction of the gradients.
        prescale_factor: each rank's gradients are multiplied by it first.
        postscale_factor: the reduced ones are multiplied by it.
        group: the ranks that take part; the world if not given.
        compression: one of Compression: the gradients travel in its smaller form.
        backward_passes_per_step: so many gradients are averaged on each rank before they are
            reduced and used; updates are zeros meanwhile.

    Raises:
        InvalidArgumentError: optimizer is no gradient transformation, or is distributed already;
            or there are no passes.
    """
    if not isinstance(optimizer, optax.GradientTransformation):
        raise InvalidArgumentError(
            f"optimizer has to be one of Optax's, such as optax.sgd(0.1), not {optimizer!r}"
        )
    if isinstance(optimizer, _Reducing):
        raise InvalidArgumentError(
            "DistributedOptimizer: this optimizer is one already, and reduces its gradients: give"
            " it Optax's own"
        )
    if backward_passes_per_step < 1:
        raise InvalidArgumentError(
            f"backward_passes_per_step has to be at least 1, not {backward_passes_per_step!r}"
        )
    inner = optax.with_extra_args_support(optimizer)

    def update(gradients: Any, state: Any, params: Any = None, **more: Any) -> Any:
        reduced = grouped_allreduce(
            gradients,
            op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            group=group,
            compression=compression,
        )
        return inner.update(reduced, state, params, **more)

    made = optax.GradientTransformationExtraArgs(inner.init, update)
    if backward_passes_per_step > 1:
        made = optax.MultiSteps(made, backward_passes_per_step).gradient_transformation()
    return _Reducing(*made)
