"""EmbeddingTable: rows of a table for functions that JAX differentiates and compiles.

    table = corro.jax.EmbeddingTable(16, name="words", optimizer="adagrad")

    @jax.jit
    def gradients(weights, rows, places, labels):
        def loss(weights, rows):
            return loss_of(weights, rows[places], labels)  # [B, L, 16], what was looked up

        return jax.grad(loss, (0, 1))(weights, rows)

    found = table.lookup(ids)  # [B, L]
    own, of_rows = gradients(weights, found.rows, found.places, labels)
    table.push((found, of_rows))

Tables are asked outside of compiled functions, which get rows as an argument like any other. How
many differ among the ids is known after that alone, so the rows are filled up with zeros to as
many as there are ids: one shape of ids is one compilation.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import numpy
from numpy.typing import NDArray

from corro import _context
from corro._host_arrays import Array
from corro.errors import InvalidArgumentError
from corro.jax._arrays import home, host
from corro.jax._tracing import outside

if TYPE_CHECKING:
    from corro.table import Initial, Optimizer, Table


class Lookup(NamedTuple):
    """What a table has for some ids.

    Attributes:
        rows: [ids.size, dim] f32, the rows of the ids that differ; then zeros.
        places: ids.shape i32, where each id's row is in rows.
        unique: [n] i64 or u64 of numpy's, the ids of the first n rows.
    """

    rows: jax.Array
    places: jax.Array
    unique: NDArray[Any]


class EmbeddingTable:
    """A table whose rows are weights of functions that JAX differentiates.

    For arrays in CPU memory, outside of compiled functions. Used from one thread at a time.

    Args:
        dim: elements of a row.
        name: the table's name, the same on all ranks and no other table's.
        optimizer: what a step does to the rows: a name or an optimizer of corro.table.
        initial: what a row is before it is trained; corro.table.Normal(0, 1) if not given.
        dtype: of the rows in the table.
        seed: of initial values.
        mode: of the table: "sync", "bounded" or "async", as of corro.table.Table.
        staleness: of the table.

    Attributes:
        table: the table, with its `lr`.
    """

    def __init__(
        self,
        dim: int,
        *,
        name: str,
        optimizer: str | Optimizer = "sgd",
        initial: Initial | None = None,
        dtype: str = "float32",
        seed: int = 0,
        mode: Literal["sync", "bounded", "async"] = "sync",
        staleness: int = 0,
    ) -> None:
        tables = import_module("corro.table")
        initial = tables.Normal(0.0, 1.0) if initial is None else initial
        self.table: Table = tables.Table(
            name,
            dim,
            optimizer=optimizer,
            dtype=dtype,
            seed=seed,
            initial=initial,
            mode=mode,
            staleness=staleness,
        )

    @outside
    def lookup(self, ids: Any) -> Lookup:
        """Returns the rows of the ids, each once; blocks until they are there.

        Args:
            ids: integers of any shape, of numpy or JAX; without jax_enable_x64 JAX has those of 32
                bits alone.

        Raises:
            InvalidArgumentError: ids are not integers, or a compiled function has them.
        """
        own = self._ids_of(ids, "EmbeddingTable.lookup")
        unique, places = numpy.unique(own, return_inverse=True)
        rows = numpy.zeros((own.size, self.table.dim), numpy.float32)
        if len(unique):
            rows[: len(unique)] = self.table.pull(unique)
        return Lookup(home(rows), home(places.reshape(own.shape).astype(numpy.int32)), unique)

    @outside
    def prefetch(self, ids: Any) -> None:
        """Begins to get the rows of a later lookup() of these ids, and does not wait for them.

        `ids`: as of lookup(), which raises the same errors.
        """
        unique = numpy.unique(self._ids_of(ids, "EmbeddingTable.prefetch"))
        if len(unique):
            self.table.prefetch(unique)

    @outside
    def push(self, *passes: tuple[Lookup, Any]) -> None:
        """Has the table take a step with the mean of all ranks' gradients.

        Every rank calls it, equally often; blocks until all servers have changed their rows.

        Args:
            passes: what lookup() returned, and the gradient of its rows, of their shape; several
                are added up, and without any this rank takes part with nothing.

        Raises:
            InvalidArgumentError: a gradient has another shape than its rows.
            ValueError: a gradient is not finite; the table is as before.
        """
        ids: list[Array] = [numpy.empty(0, numpy.int64)]
        gradients: list[Array] = [numpy.empty((0, self.table.dim), numpy.float32)]
        for found, gradient in passes:
            ids.append(found.unique.astype(numpy.int64))
            gradients.append(self._checked(found, gradient)[: len(found.unique)])
        ranks = _context.size() if _context.is_initialized() else 1
        self.table.push(numpy.concatenate(ids), numpy.concatenate(gradients) / numpy.float32(ranks))

    def _ids_of(self, ids: Any, call: str) -> NDArray[Any]:
        own = host(ids, call)
        if own.dtype.kind not in "iu":
            raise InvalidArgumentError(
                f"EmbeddingTable {self.table.name}: ids have to be integers, not {own.dtype}"
            )
        return own

    def _checked(self, found: Lookup, gradient: Any) -> NDArray[numpy.float32]:
        own = host(gradient, "EmbeddingTable.push")
        if own.shape != found.rows.shape:
            raise InvalidArgumentError(
                f"EmbeddingTable {self.table.name}: the gradient has shape {list(own.shape)}, and"
                f" its rows have {list(found.rows.shape)}"
            )
        return own.astype(numpy.float32)
