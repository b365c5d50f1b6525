"""scale_learning_rate(): a learning rate that follows the number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from corro import _context
from corro.errors import InvalidArgumentError

Rule = Callable[[int, int], float]

_RULES: dict[str, Rule] = {
    "linear": lambda old, new: new / old,
    "sqrt": lambda old, new: math.sqrt(new / old),
}


def scale_learning_rate(optimizer: Any, by: str | Rule = "linear") -> Callable[[], None]:
    """Returns a reset callback that changes the learning rates when ranks have come or gone.

    For example::

        state.register_reset_callbacks([corro.elastic.scale_learning_rate(optimizer, "sqrt")])

    Now the learning rates are those for the number of ranks that there is. With as many samples in
    each step (`global_batch`) they need no change.

    Args:
        optimizer: has `param_groups`, as torch's have; the state has to have it, too.
        by: "linear" or "sqrt" in the number of ranks, or a function of the old and the new number
            of ranks, which returns the factor. It may do more: set a scheduler's base_lrs.
    """
    rule = _RULES.get(by) if isinstance(by, str) else by
    if not callable(rule):
        raise InvalidArgumentError(
            f'scale_learning_rate: by has to be "linear", "sqrt" or a function, not {by!r}'
        )
    ranks = _context.size()

    def scale() -> None:
        nonlocal ranks
        old, ranks = ranks, _context.size()
        if old == ranks:
            return
        factor = rule(old, ranks)
        for group in optimizer.param_groups:
            group["lr"] *= factor

    return scale
