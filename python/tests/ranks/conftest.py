"""Fixtures of tests that run on every rank of a job at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import corro


@pytest.fixture(scope="session")
def job() -> Iterator[None]:
    """Joins the job before the first test that needs it and leaves it after the last."""
    corro.init()
    yield
    corro.barrier()
    corro.shutdown()
