"""Trains a table of corro.jax on every rank, and compares it with a matrix that JAX trains.

Every rank knows all ranks' batches, so each of them can compute what all should have.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy
import pytest

import corro
import corro.jax
from corro import table as tables

ROWS, DIM, RATE = 12, 3, 0.5


def batch(step: int, rank: int) -> numpy.ndarray:
    return numpy.random.default_rng([step, rank]).integers(0, ROWS, (4, 2))


def loss(rows: jax.Array, places: jax.Array) -> jax.Array:
    return (jnp.square(rows[places].sum(1)) * jnp.arange(1.0, DIM + 1)).mean()


@jax.jit
def gradient_of(rows: jax.Array, places: jax.Array) -> jax.Array:
    compiled.append(places.shape)
    return jax.grad(loss)(rows, places)


compiled: list[tuple[int, ...]] = []


def train_both(rank: int, ranks: int) -> None:
    table = corro.jax.EmbeddingTable(DIM, name="trained", optimizer=tables.SGD(lr=RATE))
    everything = numpy.arange(ROWS)
    matrix = table.table.pull(everything)
    for step in range(4):
        passes = []
        for ids in (batch(step, rank), batch(step + 9, rank)):
            found = table.lookup(ids)
            assert found.rows.shape == (8, DIM)
            assert found.places.shape == (4, 2)
            assert (found.unique[numpy.asarray(found.places)] == ids).all()
            passes.append((found, gradient_of(found.rows, found.places)))
        table.prefetch(batch(step + 1, rank))
        table.push(*passes)
        gradients = [
            jax.grad(loss)(jnp.asarray(matrix), batch(one, other))
            for one in (step, step + 9)
            for other in range(ranks)
        ]
        matrix = matrix - RATE * numpy.asarray(sum(gradients)) / ranks
        numpy.testing.assert_allclose(table.table.pull(everything), matrix, rtol=2e-5, atol=1e-6)
    assert compiled == [(4, 2)]  # However many ids differ.
    table.push()
    numpy.testing.assert_allclose(table.table.pull(everything), matrix, rtol=2e-5, atol=1e-6)


def refuse() -> None:
    table = corro.jax.EmbeddingTable(DIM, name="refusing")
    with pytest.raises(corro.InvalidArgumentError, match="integers, not float32"):
        table.lookup(jnp.ones(3))
    with pytest.raises(corro.InvalidArgumentError, match="not in a function that JAX"):
        jax.jit(lambda ids: table.lookup(ids).rows)(jnp.arange(3))
    found = table.lookup(numpy.array([2**63 + 1, 5], numpy.uint64))
    with pytest.raises(corro.InvalidArgumentError, match=r"shape \[1, 3\].*\[2, 3\]"):
        table.push((found, jnp.ones((1, DIM))))
    nothing = table.lookup(numpy.empty((0, 4), numpy.int64))
    assert nothing.rows.shape == (0, DIM)


def main() -> None:
    corro.init()
    train_both(corro.rank(), corro.size())
    refuse()
    print(f"rank {corro.rank()} of {corro.size()}: the table and the matrix are the same")
    corro.shutdown()


main()
