"""Fixtures of tests that run on every rank of a job at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import corro


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Says at once what has failed: a rank that others wait for is ended before its summary."""
    report = yield
    screen: Any = item.config.pluginmanager.get_plugin("terminalreporter")
    if report.failed:
        screen.write_line(f"\n{report.nodeid}, {report.when}: {report.longreprtext}")
    return report


@pytest.fixture(scope="session")
def job() -> Iterator[None]:
    """Joins the job before the first test that needs it and leaves it after the last."""
    corro.init()
    yield
    corro.barrier()
    corro.shutdown()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Has torch compute on one thread: ranks share the cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def process_group(request: pytest.FixtureRequest) -> Iterator[None]:
    """Makes torch's world, for modules after the first: env:// may meet the store of the last."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    meeting = Path.cwd() / f"meeting-{request.module.__name__}"  # Ranks share an empty folder.
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("corro", f"file://{meeting}", rank=rank, world_size=size)
    yield
    dist.barrier()
    dist.destroy_process_group()
    left = [thread for thread in threading.enumerate() if thread.name == "corro-completions"]
    assert corro.is_initialized() or not left
