"""Embedding layers of Keras 3 whose rows lie in tables, on TensorFlow, torch and JAX.

    import keras, corro.keras

    layers = [corro.keras.EmbeddingTable(16, name="words"), keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential([keras.Input((8,), dtype="int64"), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(ids, y, callbacks=[corro.keras.PushTables()])

DistributedOptimizer and callbacks for the rest of a model are in horovod.keras.
"""

from __future__ import annotations

from corro.keras import _required as _required
from corro.keras.embedding import EmbeddingTable, PushTables

__all__ = ["EmbeddingTable", "PushTables"]
