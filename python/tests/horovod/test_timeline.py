"""Horovod's timeline, on every rank: the file that rank 0 writes, and the variables."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import corro
import horovod.torch as hvd
from horovod.common.util import env

Event = dict[str, Any]


@pytest.fixture
def path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The same on all ranks, which share no folder of pytest's, and the test's own."""
    job = os.environ.get("CORRO_JOB_ID", "alone").replace("/", "-")
    own = Path(tempfile.gettempdir()) / f"corro-{job}-{request.node.name}.json"
    yield own
    if os.environ.get("RANK", "0") == "0":
        own.unlink(missing_ok=True)


def read(path: Path) -> list[Event]:
    events: list[Event] = json.loads(path.read_text())
    return events


def named(events: list[Event]) -> dict[str, list[Event]]:
    """Returns the events of each process of the trace, by the process's name."""
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    return {
        name: [e for e in events if e["pid"] == pid and e["ph"] != "M"]
        for pid, name in names.items()
    }


def begun(events: list[Event], name: str) -> list[int]:
    return sorted(e["tid"] for e in events if e.get("name") == name and e["ph"] == "B")


def everyone() -> list[int]:
    return list(range(hvd.size()))


def test_a_file_from_the_start(path: Path) -> None:
    with env(HOROVOD_TIMELINE=str(path), HOROVOD_TIMELINE_MARK_CYCLES="1"):
        hvd.init()
    assert not torch.equal(hvd.allreduce(torch.ones(3), op=hvd.Sum, name="x"), torch.zeros(3))
    hvd.allgather(torch.ones(2), name="x")
    hvd.broadcast(torch.ones(2), 0, name="x")
    hvd.alltoall(torch.ones(hvd.size()), name="x")
    hvd.reducescatter(torch.ones(hvd.size()), name="x")
    hvd.barrier()
    rank, ranks = hvd.rank(), everyone()
    hvd.shutdown()
    if rank > 0:
        return
    events = read(path)
    tracks = named(events)
    for kind in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter"):
        of_name = tracks[f"{kind}.x"]
        assert begun(of_name, f"NEGOTIATE_{kind.upper()}") == ranks
        assert begun(of_name, kind.upper()) == ranks
        ends = [e for e in of_name if e["ph"] == "E"]
        assert len(ends) == 2 * len(ranks)
    assert begun(events, "BARRIER") == ranks
    cycles = {e["tid"] for e in tracks["ranks"] if e["name"] == "CYCLE_START"}
    assert cycles == set(ranks)
    times = [e["ts"] for e in tracks["allreduce.x"] if e["tid"] == 0]
    assert times == sorted(times)


def test_started_and_stopped_at_run_time(path: Path) -> None:
    with pytest.raises(ValueError, match="not been initialized"):
        hvd.start_timeline(str(path))
    with env(HOROVOD_TIMELINE="DYNAMIC"):
        hvd.init()
    if hvd.rank() == 0:  # Others may see what it starts next.
        assert not path.exists()
    for round_ in range(2):
        hvd.start_timeline(str(path), mark_cycles=round_ == 1)
        hvd.allreduce(torch.ones(3), name=f"round{round_}")
        hvd.stop_timeline()
        hvd.allreduce(torch.ones(3), name="between")
        if hvd.rank() == 0:
            events = read(path)
            names = named(events)
            names.pop("ranks", None)
            assert list(names) == [f"allreduce.round{round_}"]
            assert begun(events, "ALLREDUCE") == everyone()
            assert any(e.get("name") == "CYCLE_START" for e in events) == (round_ == 1)
    hvd.stop_timeline()
    hvd.shutdown()


def test_another_one_replaces_it(path: Path) -> None:
    with env(HOROVOD_TIMELINE="DYNAMIC"):
        hvd.init()
    hvd.start_timeline(str(path))
    hvd.start_timeline(str(path))
    hvd.allreduce(torch.ones(3), name="x")
    hvd.stop_timeline()
    if hvd.rank() == 0:
        assert list(named(read(path))) == ["allreduce.x"]
    hvd.shutdown()


def test_it_has_to_be_asked_for_before_init(path: Path) -> None:
    hvd.init()
    with pytest.raises(ValueError, match=r"^Set HOROVOD_TIMELINE=DYNAMIC"):
        hvd.start_timeline(str(path))
    hvd.stop_timeline()
    hvd.shutdown()


def test_training_goes_on_without_one(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with env(HOROVOD_TIMELINE=str(path / "no" / "folder.json")):
        hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    told = [record.message for record in caplog.records if "no timeline" in record.message]
    assert len(told) == (hvd.rank() == 0), caplog.text
    hvd.shutdown()


def test_gradients_are_shown_by_their_bucket(path: Path) -> None:
    with env(HOROVOD_TIMELINE=str(path)):
        hvd.init()
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    rank, ranks = hvd.rank(), everyone()
    hvd.shutdown()
    if rank == 0 and len(ranks) > 1:
        bucket = named(read(path))['bucket 0 ("bias" and 1 more)']
        assert begun(bucket, "ALLREDUCE") == sorted(3 * ranks)


def test_corro_says_what_is_wrong(path: Path) -> None:
    corro.init()
    corro.start_timeline(path)
    with pytest.raises(corro.FailedPreconditionError, match="stop it first"):
        corro.start_timeline(path)
    corro.stop_timeline()
    if corro.rank() == 0:
        with pytest.raises(corro.NotFoundError, match="nowhere"):
            corro.start_timeline(path.parent / "nowhere" / "t.json")
    corro.barrier()
    corro.shutdown()
