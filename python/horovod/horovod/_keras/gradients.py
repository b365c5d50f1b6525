"""What makes the gradients of a rank's optimizer those of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod._keras.chosen import BACK_END
from horovod._keras.reduction import Reduction


class GradientReducer:
    """Reduces gradients, but not those of variables that are this rank's own.

    Args:
        how: what becomes of them.
        scale: what they are multiplied by first.
    """

    def __init__(self, how: Reduction) -> None:
        self.how = how
        self._own: dict[int, Any] = {}

    def keep_local(self, variable: Any) -> None:
        """Has gradients of this variable stay this rank's own."""
        self._own[id(variable)] = variable

    @BACK_END.unconverted
    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients, with those of all ranks in the place of this rank's.

        Args:
            gradients: tensors; None where nothing depends on the variable.
            variables: as many, the same on every rank.
        """
        results = list(gradients)
        there = [i for i, gradient in enumerate(gradients) if gradient is not None]
        own = [i for i in there if id(variables[i]) in self._own]
        shared = [i for i in there if i not in own]
        if self.how.scale_local_gradients:
            for i in own:
                results[i] = BACK_END.divided(gradients[i], self.how.process_set.size() or 1)
        if shared and self.how.takes_part():
            reduced = BACK_END.reduced([gradients[i] for i in shared], self.how)
            for i, gradient in zip(shared, reduced, strict=True):
                results[i] = gradient
        return results
