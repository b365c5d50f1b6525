"""What is told of a plan for the dashboard."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import corro
from corro.torch.parallel.report import Line
from corro.torch.parallel.shown import described, spans

CLUSTER = Path(__file__).resolve().parents[2] / "examples/plan/a100_64.yaml"
MOST = 4088  # Bytes of a notice.


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([0, 1, 2, 8], "0-2,8"), ([8, 2, 1, 2], "1-2,8")],
)
def test_numbers_are_told_as_spans(numbers: list[int], text: str) -> None:
    assert spans(numbers) == text


def test_a_plan_is_told_with_its_stages_and_what_was_measured() -> None:
    planned = corro.plan("gpt3-175b", CLUSTER, global_batch=256, pins={"pipeline": 8})
    lines = (Line("compute", 1.0, 1.5), Line("step", planned.step, 2.0))
    text = described(planned, "eight stages", range(64), lines)
    assert len(text.encode()) <= MOST
    told = json.loads(text)
    assert told["text"] == "eight stages"
    assert told["terms"] == [["compute", 1.0, 1.5]]
    assert (told["step_seconds"], told["measured_seconds"]) == (planned.step, 2.0)
    assert [each["ranks"] for each in told["stages"]] == [
        f"{8 * stage}-{8 * stage + 7}" for stage in range(8)
    ]
    assert all(0 < each["memory_bytes"] <= each["limit_bytes"] for each in told["stages"])
    assert all(each["backward_seconds"] > each["forward_seconds"] for each in told["stages"])


def test_what_is_too_long_is_told_without_its_stages() -> None:
    planned = corro.plan("gpt3-175b", CLUSTER, global_batch=256, pins={"pipeline": 8})
    text = described(dataclasses.replace(planned, why=""), "x" * 3000, range(64))
    assert len(text.encode()) <= MOST
    assert json.loads(text)["stages"] == []
    assert json.loads(text)["text"] == "x" * 3000
    assert json.loads(text)["measured_seconds"] is None
    text = described(dataclasses.replace(planned, why="\U0001f600" * 3000), "x" * 2500, range(64))
    assert len(text.encode()) <= MOST
    assert 0 < len(json.loads(text)["why"]) < 3000
