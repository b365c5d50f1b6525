"""Tables of corro.jax and corro.keras train as JAX and Keras do alone; torch has a file of its own.

JAX and TensorFlow are in environments of their own, which `make test-setup` makes.
"""

from __future__ import annotations

import pytest
from conftest import HERE, Launch
from test_jax import PYTHON as JAX
from test_jax import needs_jax
from test_keras import QUIET, the

SERVERS = ("--servers", "2")
OF_RANKS = [(1, ()), (2, SERVERS)]


@needs_jax
@pytest.mark.parametrize(("ranks", "options"), OF_RANKS)
def test_jax(launch: Launch, ranks: int, options: tuple[str, ...]) -> None:
    worker = str(HERE / "table_jax_worker.py")
    job = launch(worker, python=JAX, ranks=ranks, options=options).check()
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: the table and the matrix are the same" in job.output


@pytest.mark.apart
@pytest.mark.parametrize(("ranks", "options"), OF_RANKS)
@pytest.mark.parametrize("back_end", ["tensorflow", "torch", "jax"])
def test_keras(launch: Launch, back_end: str, ranks: int, options: tuple[str, ...]) -> None:
    keras = the(f"keras3-{back_end}")
    worker = str(HERE / "table_keras_worker.py")
    how = {"python": keras.python, "ranks": ranks, "options": options}
    job = launch(worker, **how, **keras.variables, **QUIET).check()
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: {back_end} trained as it does alone" in job.output
