"""What a layer's operations ask for on the host, whatever the back end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from corro import _context

if TYPE_CHECKING:
    from corro.table import Table

Array = NDArray[Any]


class Rows:
    """A table, and gradients of its rows that wait for a step.

    push() is called by one thread at a time, while no operation runs; the others by any.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._aside: list[tuple[Array, Array]] = []  # [n] i64 and [n, dim] f32

    def pull(self, ids: Array) -> Array:
        """Returns the rows of the ids, [*S, dim] f32, each of which is pulled once."""
        own = numpy.asarray(ids)
        unique, places = numpy.unique(own, return_inverse=True)
        if not len(unique):
            return numpy.empty((*own.shape, self.table.dim), numpy.float32)
        rows: Array = self.table.pull(unique)[places.reshape(own.shape)]
        return rows

    def prefetch(self, ids: Any) -> None:
        """Begins to pull what pull() of these ids is going to."""
        unique = numpy.unique(numpy.asarray(ids))
        if len(unique):
            self.table.prefetch(unique)

    def put_aside(self, ids: Array, gradients: Array) -> Array:
        """Keeps gradients until push(); returns a zero, which is the gradient of the anchor."""
        # Copies: the back end may use the memory again.
        own = numpy.array(gradients, numpy.float32).reshape(-1, self.table.dim)
        self._aside.append((numpy.array(ids, numpy.int64).reshape(-1), own))
        return numpy.zeros((), numpy.float32)

    def push(self) -> None:
        """Has the table take a step with the mean of all ranks' gradients; every rank calls it."""
        nothing = numpy.empty(0, numpy.int64), numpy.empty((0, self.table.dim), numpy.float32)
        aside, self._aside = [nothing, *self._aside], []
        ids, rows = (numpy.concatenate(part) for part in zip(*aside, strict=True))
        ranks = _context.size() if _context.is_initialized() else 1
        self.table.push(ids, rows / numpy.float32(ranks))
