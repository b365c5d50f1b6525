"""The plan of a job of `corro.parallelize()`, as its dashboard shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import test_dashboard as dashboards
from .conftest import Launcher, wait_until
from .test_dashboard_spread import show

pytestmark = dashboards.pytestmark
browser = dashboards.browser  # The fixtures.
window = dashboards.window
replay = dashboards.replay

PLANNED = """
import os
import torch
import torch.nn.functional as F
from torch import nn
import corro

corro.init()
torch.manual_seed(1)
torch.set_num_threads(1)
blocks = [nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(3)]
model = nn.Sequential(*blocks, nn.Linear(16, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
batch = torch.randn(8, 16), torch.randint(0, 10, (8,))
trainer = corro.parallelize(
    model, optimizer, lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]), batch,
    pins={"pipeline": 2, "micro_batch": 2}, replan=False,
)
end = torch.zeros(1)
while end == 0:
    trainer.step(batch)
    end = corro.torch.allreduce(torch.tensor([float(os.path.exists("end"))]), corro.Max)
trainer.close()
"""


def stage(first: int, end: int, ranks: str, memory: float) -> dict[str, Any]:
    return {
        "layers": [first, end],
        "ranks": ranks,
        "memory_bytes": memory,
        "limit_bytes": 8 * 2**30,
        "forward_seconds": 0.01,
        "backward_seconds": 0.02,
    }


def history_of(plan: dict[str, Any]) -> str:
    ranks = [{"place": 0, "rank": 0, "host": "node7", "state": "running", "step_seconds": 0.15}]
    picture = {"summary": "it runs", "state": "running", "epoch": 0, "lost": 0, "ranks": ranks}
    lines: list[dict[str, Any]] = [
        {"corro_history": 1, "time": 1_700_000_000, "job": "3f2a", "command": "train.py"},
        {"time": 1_700_000_001, **picture, "plan": plan},
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_a_plan_is_drawn_as_it_was_told(
    launcher: Launcher, window: dashboards.Window, replay: Callable[[Path], Any]
) -> None:
    plan: dict[str, Any] = {
        "text": dashboards.HOSTILE,
        "why": "Two stages take less than one.",
        "limiting": "computing",
        "step_seconds": 0.12,
        "schedule": "1f1b",
        "micro_batches": 4,
        "chunks": 1,
        "terms": [["compute", 0.1, 0.11]],
        "measured_seconds": None,
        "stages": [stage(0, 3, "0-3,8", 2 * 2**30), stage(3, 4, "4-7", 7.5 * 2**30)],
    }
    show(launcher, window, replay, history_of(plan))
    window.says("#plan-text", "<img src=x")
    window.says(
        "#plan-text", "predicted to take 120 ms, limited by computing; steps take 150 ms, 25 %"
    )
    window.says("#plan-why", "Two stages take less than one.")
    rows = window.page.locator("#plan-stage-rows tr")
    assert rows.nth(0).locator("td").all_text_contents() == [
        "0", "0 to 2", "0-3,8", "2 GiB", "8 GiB", "10 ms", "20 ms",
    ]  # fmt: skip
    assert rows.nth(1).locator("td").all_text_contents()[1] == "3"
    window.says("#plan-memory-text", "the fullest has 94 %")
    assert window.page.locator("#plan-memory .plan-full").count() == 1
    # Four micro-batches forward and backward on two stages: 5 of 15 times are idle on neither.
    assert window.page.locator("#plan-pipeline rect").count() == 16
    window.says("#plan-pipeline-text", "stages are idle 20 % of 150 ms")
    assert window.page.locator("img").count() == 0, "names are text"
    assert window.troubles == []


def test_without_a_plan_there_is_no_section(
    launcher: Launcher, window: dashboards.Window, replay: Callable[[Path], Any]
) -> None:
    text = history_of({}).replace(', "plan": {}', "")
    show(launcher, window, replay, text)
    assert window.page.locator("#plan").is_hidden()
    assert window.troubles == []


def test_a_running_job_shows_its_plan_beside_what_steps_take(
    launcher: Launcher, window: dashboards.Window
) -> None:
    shown = dashboards.start(launcher, launcher.script(PLANNED))
    window.page.goto(shown.url)
    window.says(
        "#plan-text", re.compile(r"^data 1, pipeline 2 \(\d\+\d layers\), .* was predicted")
    )
    window.says("#plan-terms", re.compile(r"compute[\d.]+ .?s[\d.]+ .?s"))
    assert window.page.locator("#plan-stage-rows tr").count() == 2
    assert window.page.locator("#plan-pipeline rect").count() == 16
    wait_until(lambda: shown.facts()["plan"]["measured_seconds"] is not None, "it was measured")
    plan = shown.facts()["plan"]
    assert [each["ranks"] for each in plan["stages"]] == ["0", "1"]
    assert plan["micro_batches"] == 4
    (launcher.directory / "end").touch()
    window.says("#summary", "the job is over")
    assert shown.job.wait() == 0
    assert window.page.locator("#plan-stage-rows tr").count() == 2
    assert window.troubles == []
