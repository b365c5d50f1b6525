"""What the tests of Horovod's interface share: a job, and what each rank contributes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import horovod.torch as hvd


@pytest.fixture(autouse=True)
def job() -> Iterator[None]:
    hvd.init(process_sets="dynamic")
    yield
    hvd.barrier()
    hvd.shutdown()


@pytest.fixture
def two() -> None:
    if hvd.size() == 1:
        pytest.skip("there is nobody else")
