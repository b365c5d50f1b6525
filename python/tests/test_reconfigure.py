"""torch's reconfigure(): a group's members change, and their processes live on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch_version import needs_new

import corro.torch  # noqa: F401  # The back end.
from corro import _context
from corro.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    TimeoutError,
)

pytestmark = [needs_new, pytest.mark.beside]
WORKER = Path(__file__).with_name("reconfigure_worker.py")


@pytest.fixture
def handle() -> Iterator[str]:
    """Makes the default group, of this process, without members yet; returns its handle."""
    dist.init_process_group(
        "corro",
        store=dist.HashStore(),
        rank=0,
        world_size=1,
        enable_reconfigure=True,
        timeout=timedelta(seconds=20),
    )
    yield dist._get_reconfigure_handle()
    dist.destroy_process_group()


def summed() -> float:
    value = torch.ones(1)
    dist.all_reduce(value)
    return value.item()


@pytest.mark.faults
def test_a_member_is_lost_and_another_one_comes() -> None:
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    rounds = ["a,b,c", "c,a", "a,d,c"]
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(
                subprocess.Popen(
                    [sys.executable, WORKER, str(store.port), name, dies, *rounds],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for name, dies in (("a", ""), ("b", "dies"), ("c", ""), ("d", ""))
        }
        for process in started.values():
            stack.callback(process.kill)
        said = {name: one.communicate(timeout=120)[0] for name, one in started.items()}
    codes = {name: process.returncode for name, process in started.items()}
    assert codes == {"a": 0, "b": -9, "c": 0, "d": 0}
    for name, ranks in ("a", (0, 1, 0)), ("c", (2, 0, 2)):
        lines = said[name].splitlines()
        assert [line for line in lines if "round" in line] == [
            f"{name}: round {number}, rank {rank} of {size}"
            for number, (rank, size) in enumerate(zip(ranks, (3, 2, 3), strict=True))
        ]
        assert len(lines) == 4
        assert "was lost: its process has ended" in lines[1]
    assert said["d"] == "d: round 2, rank 1 of 3\n"


def test_there_are_no_members_before_the_first_call(handle: str) -> None:
    assert dist._supports_reconfigure()
    for _ in range(2):
        with pytest.raises(AbortedError, match=r"reconfigure\(\) has not been called"):
            summed()
    assert dist._reconfigure(1, {handle}).wait()
    assert summed() == 1


def test_mistakes_change_nothing(handle: str) -> None:
    dist._reconfigure(1, [handle]).wait()
    with pytest.raises(InvalidArgumentError, match="the handle of this process is not among"):
        dist._reconfigure(2, ["another"])
    with pytest.raises(InvalidArgumentError, match="a handle is there twice"):
        dist._reconfigure(2, [handle, "another", "another"])
    with pytest.raises(AlreadyExistsError, match="the uuid 1 was used before"):
        dist._reconfigure(1, [handle])
    assert summed() == 1


def test_a_member_that_does_not_come_is_named(handle: str) -> None:
    with pytest.raises(TimeoutError, match="rank 1"):
        dist._reconfigure(1, [handle, "another"], timeout=timedelta(seconds=0.5))
    with pytest.raises(AbortedError, match=r"the last reconfigure\(\) has failed: .*rank 1"):
        summed()
    dist._reconfigure(2, [handle]).wait()
    assert summed() == 1
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)


def test_a_group_that_was_aborted_gets_members_again(handle: str) -> None:
    dist._reconfigure(1, [handle]).wait()
    dist.group.WORLD.abort()
    dist._reconfigure(2, [handle]).wait()
    assert summed() == 1


def test_an_elastic_job_makes_its_group_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_context, "_membership", object())
    with pytest.raises(FailedPreconditionError, match="in each membership epoch"):
        dist.init_process_group(
            "corro", store=dist.HashStore(), rank=0, world_size=1, enable_reconfigure=True
        )
