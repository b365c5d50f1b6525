"""A model and its optimizer, as callbacks change them: the same for all Kerases."""

from __future__ import annotations

from typing import Any

from horovod._keras.framework import is_keras_3, keras


def build_optimizer(model: Any, optimizer: Any) -> bool:
    """Makes an optimizer's variables; returns False if the model has not made its own yet.

    Args:
        model: whose variables it updates.
        optimizer: None if there is none.
    """
    if not model.built or optimizer is None:
        return bool(model.built)
    variables = model.trainable_variables
    if not is_keras_3 and hasattr(optimizer, "_create_all_weights"):
        optimizer._create_all_weights(variables)
    elif not is_keras_3 or not optimizer.built:
        optimizer.build(variables)
    return True


def weights_of(model: Any, optimizer: Any) -> list[Any]:
    """Returns the variables of a model, without random seeds, and of an optimizer, if it is one."""
    return [*model.weights, *variables_of(optimizer)]


def variables_of(optimizer: Any) -> list[Any]:
    """Returns the variables of an optimizer, which may be None."""
    if optimizer is None:
        return []
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def synchronize(model: Any) -> None:
    """Has the variables be what training has made of them: on JAX they are not, within an epoch.

    And training goes on with what is then assigned to them.
    """
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


def learning_rate_of(optimizer: Any) -> float:
    """Returns the learning rate of the next step."""
    rate = optimizer.learning_rate
    if is_keras_3:
        return float(keras.ops.convert_to_numpy(rate))
    return float(keras.backend.get_value(rate))


def set_learning_rate(optimizer: Any, rate: float) -> None:
    """Sets it; TypeError if the optimizer has a schedule of its own."""
    optimizer.learning_rate = rate


def scale_momentum(optimizer: Any, factor: float) -> None:
    """Multiplies what is in the momentum of SGD and RMSprop, of which the learning rate is part.

    Without that, a step after a change of the rate has the momentum of another rate.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    momentum = getattr(inner, "momentum", None)
    if momentum is None or not (momentum if is_keras_3 else keras.backend.get_value(momentum)):
        return
    for buffer in _momentum_buffers(inner):
        buffer.assign(buffer * factor)


def _momentum_buffers(optimizer: Any) -> list[Any]:
    for name in ("momentums", "_momentums"):
        if hasattr(optimizer, name):
            return [one for one in getattr(optimizer, name) if one is not None]
    return [one for one in variables_of(optimizer) if "/momentum" in one.name]
