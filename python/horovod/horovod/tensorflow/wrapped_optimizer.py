"""What the distributed optimizers of tf.compat.v1 have in common: the optimizer that they use."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

V1 = tf.compat.v1.train.Optimizer


class WrappedOptimizer(V1):  # type: ignore[misc,valid-type]
    """Another optimizer, under a new name."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """As the optimizer's own."""
        pairs: list[tuple[Any, Any]] = self._optimizer.compute_gradients(*args, **kwargs)
        return pairs

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's own."""
        return self._optimizer.apply_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's own."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's own."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's own."""
        return self._optimizer.variables(*args, **kwargs)
