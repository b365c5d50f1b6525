"""load_model(): a saved model, whose optimizer then has the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod._keras.chosen import BACK_END
from horovod._keras.framework import keras
from horovod._keras.optimizer import DistributedOptimizer, is_distributed


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = BACK_END.compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Returns a saved model, with a DistributedOptimizer that goes on where the saved one was.

    Args:
        filepath: what keras.models.load_model() takes.
        custom_optimizers: classes of optimizers that are not Keras's.
        custom_objects: other objects that are not Keras's, by name.
        compression: what gradients travel as.
        legacy_opts: as Horovod takes it; nothing differs.
    """
    del legacy_opts
    objects = {one.__name__: one for one in custom_optimizers or []} | (custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not is_distributed(optimizer):
        model.optimizer = DistributedOptimizer(optimizer, compression=compression)
    return model
