"""What the tests of Horovod's interface share: a job, and what each rank contributes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import horovod.torch as hvd


@pytest.fixture
def job() -> Iterator[None]:
    """From init() to shutdown(), around each test."""
    hvd.init(process_sets="dynamic")
    yield
    hvd.barrier()
    hvd.shutdown()


@pytest.fixture
def two(job: None) -> None:  # noqa: ARG001  # There is no size before.
    """Skips with one rank."""
    if hvd.size() == 1:
        pytest.skip("there is nobody else")


@pytest.fixture(params=["world", "set"])
def members(request: pytest.FixtureRequest, job: None) -> Iterator[hvd.ProcessSet]:  # noqa: ARG001
    """The world, or all of it but the first rank, which has nothing to do meanwhile."""
    if request.param == "world":
        yield hvd.global_process_set
        return
    if hvd.size() == 1:
        pytest.skip("there is nobody else")
    part = hvd.add_process_set(range(1, hvd.size()))
    yield part
    hvd.remove_process_set(part)
