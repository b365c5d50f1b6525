"""Tables of corro.jax train as JAX does alone; torch has a file of its own.

JAX is in an environment of its own, which `make test-setup` makes.
"""

from __future__ import annotations

import pytest
from conftest import HERE, Launch
from test_jax import PYTHON as JAX
from test_jax import needs_jax

SERVERS = ("--servers", "2")
OF_RANKS = [(1, ()), (2, SERVERS)]


@needs_jax
@pytest.mark.parametrize(("ranks", "options"), OF_RANKS)
def test_jax(launch: Launch, ranks: int, options: tuple[str, ...]) -> None:
    worker = str(HERE / "table_jax_worker.py")
    job = launch(worker, python=JAX, ranks=ranks, options=options).check()
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: the table and the matrix are the same" in job.output
