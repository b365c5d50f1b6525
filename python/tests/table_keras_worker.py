"""Trains a table of corro.keras on every rank, and compares it with Keras's own layer.

Every rank knows all ranks' samples, so each of them can train the other model on all of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy

import corro.keras
import horovod.keras as hvd
from corro import table as tables

ROWS, DIM, RATE, BATCH, STEPS = 12, 3, 0.5, 6, 4


def samples(rank: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    draw = numpy.random.default_rng(rank)
    ids = draw.integers(0, ROWS, (BATCH * STEPS, 2))
    return ids, draw.random((BATCH * STEPS, DIM)).astype("float32")


def model_of(layer: keras.layers.Layer, wrap: Callable[[Any], Any]) -> keras.Model:
    keras.utils.set_random_seed(1)
    shape, mean = keras.Input((2,), dtype="int64"), keras.layers.GlobalAveragePooling1D()
    model = keras.Sequential([shape, layer, mean, keras.layers.Dense(DIM)])
    model.compile(wrap(keras.optimizers.SGD(RATE)), loss="mse")
    return model


def all_samples(ranks: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Returns those of all ranks: batches that are the ranks' put together."""
    parts = zip(*(samples(rank) for rank in range(ranks)), strict=True)
    of_steps = ([one.reshape(STEPS, BATCH, -1) for one in part] for part in parts)
    ids, targets = (numpy.concatenate(part, 1) for part in of_steps)
    return ids.reshape(-1, 2), targets.reshape(-1, DIM)


def main() -> None:
    hvd.init()
    rank, ranks = hvd.rank(), hvd.size()
    layer = corro.keras.EmbeddingTable(DIM, name="words", optimizer=tables.SGD(lr=RATE))
    other = keras.layers.Embedding(ROWS, DIM)
    everything = numpy.arange(ROWS)
    ours, plain = model_of(layer, hvd.DistributedOptimizer), model_of(other, lambda same: same)
    other.set_weights([layer.table.pull(everything)])
    plain.layers[-1].set_weights(ours.layers[-1].get_weights())
    push = corro.keras.PushTables()
    fit = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 2}
    ours.fit(*samples(rank), callbacks=[push], **fit)
    plain.fit(*all_samples(ranks), **fit | {"batch_size": BATCH * ranks})
    (trained,) = other.get_weights()
    pulled = layer.table.pull(everything)
    numpy.testing.assert_allclose(pulled, trained, rtol=2e-5, atol=1e-6)
    for own, expected in zip(*(one.layers[-1].get_weights() for one in (ours, plain)), strict=True):
        numpy.testing.assert_allclose(own, expected, rtol=2e-5, atol=1e-6)
    ids = samples(rank)[0]
    layer.prefetch(ids)
    made, expected = (model.predict(ids, verbose=0) for model in (ours, plain))
    numpy.testing.assert_allclose(made, expected, rtol=2e-5, atol=1e-6)
    path = str(Path(tempfile.mkdtemp()) / "model.keras")
    ours.save(path)
    loaded = hvd.load_model(path)  # Its rows are where they were.
    assert (loaded.predict(ids, verbose=0) == made).all()
    assert loaded.layers[0].get_config() == layer.get_config()
    layer.push()  # What was predicted is not trained.
    assert (layer.table.pull(everything) == pulled).all()
    print(f"rank {rank} of {ranks}: {keras.backend.backend()} trained as it does alone")
    hvd.shutdown()


main()
