"""EmbeddingTable, a layer, and PushTables, the callback that has its table take steps.

The layer has one weight, a zero that nothing reads, the anchor: back ends compute gradients of
weights, and on the way to the anchor's, which is zero, the layer gets that of its rows. It is put
aside until PushTables pushes it, at the end of the batch.
"""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

import keras

from corro.errors import InvalidArgumentError
from corro.keras._rows import Rows

if TYPE_CHECKING:
    from corro.table import Initial, Optimizer, Table

BACK_ENDS = ("tensorflow", "torch", "jax")


def _back_end() -> Any:
    """Returns the module of Keras's back end."""
    name = keras.backend.backend()
    if name not in BACK_ENDS:
        raise InvalidArgumentError(
            f"EmbeddingTable: Keras's back end {name} cannot train: {', '.join(BACK_ENDS)} can"
        )
    return import_module(f"corro.keras.on_{name}")


def _described(value: Any) -> Any:
    """Returns an optimizer or initial value of corro.table as a config has it."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return {"kind": type(value).__name__, **asdict(value)}


def _as_described(value: Any) -> Any:
    """Returns what _described() was given."""
    if not isinstance(value, dict):
        return value
    tables = import_module("corro.table")
    kinds = [*get_args(tables.Optimizer), *get_args(tables.Initial)]
    made = {kind.__name__: kind for kind in kinds}[value["kind"]]
    return made(**{name: number for name, number in value.items() if name != "kind"})


@keras.saving.register_keras_serializable("corro")
class EmbeddingTable(keras.layers.Layer):  # type: ignore[misc]
    """As keras.layers.Embedding, with rows that lie in a table, and not in the model.

    Any integer of 64 bits is an id; on JAX of 32 bits, without jax_enable_x64. In fit() rows are
    trained by the callback PushTables; in predict() and evaluate() they are pulled alone. A saved
    model has no rows: one that is loaded, or a clone, asks for the table of the same name. On
    TensorFlow XLA does not compile a model that has the layer.

    Args:
        dim: elements of a row.
        name: of the layer and of its table: the same on all ranks and no other table's.
        optimizer: what a step does to the rows: a name or an optimizer of corro.table.
        initial: what a row is before it is trained; corro.table.Normal(0, 0.05) if not given.
        table_dtype: of the rows in the table.
        seed: of initial values.
        table_mode: of the table: "sync", "bounded" or "async", as of corro.table.Table.
        staleness: of the table.
        layer: as of every layer: trainable, dtype.
    """

    def __init__(
        self,
        dim: int,
        *,
        name: str,
        optimizer: str | Optimizer = "sgd",
        initial: Initial | None = None,
        table_dtype: str = "float32",
        seed: int = 0,
        table_mode: Literal["sync", "bounded", "async"] = "sync",
        staleness: int = 0,
        **layer: Any,
    ) -> None:
        super().__init__(name=name, **layer)
        self._back_end = _back_end()
        self.supports_jit = keras.backend.backend() != "tensorflow"
        tables = import_module("corro.table")
        initial = tables.Normal(0.0, 0.05) if initial is None else _as_described(initial)
        table = tables.Table(
            name,
            dim,
            optimizer=_as_described(optimizer),
            dtype=table_dtype,
            seed=seed,
            initial=initial,
            mode=table_mode,
            staleness=staleness,
        )
        self._rows = Rows(table)

    @property
    def table(self) -> Table:
        """The table, with its `lr`."""
        return self._rows.table

    def build(self, input_shape: Any) -> None:
        """Makes the anchor."""
        del input_shape
        self.anchor = self.add_weight(shape=(), initializer="zeros", name="anchor")

    def call(self, ids: Any, training: bool = False) -> Any:
        """Returns the rows of ids of shape S: S + (dim,), of the layer's compute dtype; blocks."""
        if training:
            anchor = keras.ops.convert_to_tensor(self.anchor)
            rows = self._back_end.looked_up(self._rows, ids, anchor)
        else:
            rows = self._back_end.pulled(self._rows, ids)
        return keras.ops.cast(rows, self.compute_dtype)

    def prefetch(self, ids: Any) -> None:
        """Begins to get the rows of a later call with these ids, and does not wait for them.

        `ids`: integers of any shape, that numpy can read; outside of compiled functions.
        """
        self._rows.prefetch(ids)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns S + (dim,)."""
        return (*input_shape, self.table.dim)

    def get_config(self) -> dict[str, Any]:
        """Returns what makes the layer again."""
        own = self.table
        config: dict[str, Any] = super().get_config() | {
            "dim": own.dim,
            "optimizer": _described(own.optimizer),
            "initial": _described(own.initial),
            "table_dtype": own.dtype,
            "seed": own.seed,
            "table_mode": own.mode,
            "staleness": own.staleness,
        }
        return config

    def push(self) -> None:
        """Has the table take a step with the mean of all ranks' gradients; every rank calls it.

        PushTables does it; loops of one's own call it after each step of the optimizer.
        """
        if keras.backend.backend() == "jax":
            import_module("jax").effects_barrier()
        self._rows.push()


class PushTables(keras.callbacks.Callback):  # type: ignore[misc]
    """Has every EmbeddingTable of the model take a step after each batch of fit().

    All ranks have it, and equally many batches.
    """

    def on_train_begin(self, logs: Any = None) -> None:
        """Finds the tables, which step in the order of their names."""
        del logs
        layers = self.model._flatten_layers()
        own = [one for one in layers if isinstance(one, EmbeddingTable)]
        self._tables = sorted(own, key=lambda one: str(one.name))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Pushes; blocks until all servers have changed their rows."""
        del batch, logs
        for one in self._tables:
            one.push()
