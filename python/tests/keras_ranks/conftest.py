"""Fixtures of Keras's tests, which run on every rank of a job at once, with each Keras."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import horovod.keras as hvd


@pytest.fixture(scope="session", autouse=True)
def job() -> Iterator[None]:
    """Joins the job before the first test and leaves it after the last."""
    hvd.init(process_sets="dynamic")
    yield
    hvd.shutdown()
