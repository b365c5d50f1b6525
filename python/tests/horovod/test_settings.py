"""HOROVOD_* variables that do something, on every rank."""

from __future__ import annotations

import json
import logging
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import corro
import horovod.torch as hvd
from horovod.common import settings
from horovod.common.util import env


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    yield
    hvd.shutdown()


def needs_two() -> None:
    if hvd.size() == 1:
        pytest.skip("there is nobody else")


def test_the_shutdown_time_ends_a_wait_with_the_name_of_who_is_missing() -> None:
    with env(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="1"):
        hvd.init()
    needs_two()
    late = hvd.size() - 1
    if hvd.rank() != late:
        with pytest.raises(hvd.HorovodInternalError, match=f"not submitted by rank {late}"):
            hvd.allreduce(torch.ones(2), name="late")
    corro.barrier(timeout=60)
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum, name="again").tolist() == [hvd.size()] * 2


def test_the_time_of_the_stall_inspector_is_a_deadline() -> None:
    def deadlines(**variables: str) -> dict[str, float | None]:
        return settings.deadlines({f"HOROVOD_{name}": value for name, value in variables.items()})

    shutdown = "STALL_SHUTDOWN_TIME_SECONDS"
    half_an_hour = {"timeout": 1800, "join_timeout": 60}
    assert deadlines() == half_an_hour, "rank 0 may evaluate for long"
    assert settings.deadlines({"CORRO_TIMEOUT": "3"}) == {"timeout": None, "join_timeout": None}
    assert deadlines(**{shutdown: "5"}) == {"timeout": 5, "join_timeout": 60}
    assert deadlines(**{shutdown: "0"})["timeout"] == math.inf
    assert deadlines(**{shutdown: "5"}, STALL_CHECK_DISABLE="1") == half_an_hour
    assert deadlines(GLOO_TIMEOUT_SECONDS="7") == {"timeout": 1800, "join_timeout": 7}
    assert deadlines(START_TIMEOUT="9", GLOO_TIMEOUT_SECONDS="7")["join_timeout"] == 9
    with pytest.raises(ValueError, match="HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=soon"):
        deadlines(**{shutdown: "soon"})


def test_nobody_gives_up_where_the_shutdown_time_is_zero() -> None:
    with env(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="0"):
        hvd.init()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum, name="x").tolist() == [hvd.size()] * 2


@pytest.mark.parametrize(("threshold", "buckets"), [("0", 4), ("100", 2), (str(64 << 20), 1)])
def test_the_fusion_threshold_is_the_size_of_buckets(threshold: str, buckets: int) -> None:
    job = os.environ.get("CORRO_JOB_ID", "alone").replace("/", "-")
    path = Path(tempfile.gettempdir()) / f"corro-{job}-{threshold}.json"
    if os.environ["WORLD_SIZE"] == "1":
        hvd.init()
        needs_two()
    with env(HOROVOD_FUSION_THRESHOLD=threshold, HOROVOD_TIMELINE=str(path)):
        hvd.init()
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(10, 1) for _ in range(4)))  # 40 bytes each,
        for layer in model:
            layer.bias = None  # without it.
        weights = [(f"w{i}", layer.weight) for i, layer in enumerate(model)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters()), weights)
    sum(layer(torch.ones(10)).sum() for layer in model).backward()
    optimizer.step()
    hvd.shutdown()
    if os.environ["RANK"] == "0":
        trace = json.loads(path.read_text())
        names = {e["args"]["name"] for e in trace if e.get("name") == "process_name"}
        assert len([name for name in names if name.startswith("bucket")]) == buckets
        path.unlink()


def test_operations_by_name_have_the_same_threshold() -> None:
    with env(HOROVOD_FUSION_THRESHOLD="1000"), settings.fusion_of_the_engine():
        assert os.environ["CORRO_FUSION_BYTES"] == "1000"
    assert "CORRO_FUSION_BYTES" not in os.environ
    with (
        env(HOROVOD_FUSION_THRESHOLD="1000", CORRO_FUSION_BYTES="5"),
        settings.fusion_of_the_engine(),
    ):
        assert os.environ["CORRO_FUSION_BYTES"] == "5"


def test_the_log_level() -> None:
    with env(HOROVOD_LOG_LEVEL="error"):
        assert settings.logger().level == logging.ERROR
    assert settings.logger().level == logging.WARNING


def test_what_only_horovod_has_changes_nothing(recwarn: pytest.WarningsRecorder) -> None:
    with env(
        HOROVOD_AUTOTUNE="1",
        HOROVOD_CACHE_CAPACITY="0",
        HOROVOD_CYCLE_TIME="5",
        HOROVOD_HIERARCHICAL_ALLREDUCE="1",
        HOROVOD_THREAD_AFFINITY="0",
        HOROVOD_WITH_PYTORCH="1",
    ):
        hvd.init()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="x").item() == hvd.size()
    assert not recwarn.list
