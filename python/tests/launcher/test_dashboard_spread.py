"""How the ranks of a large job differ: what `corro dash` shows of a history that was made here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import test_dashboard as dashboards
from .conftest import Launcher

pytestmark = dashboards.pytestmark
browser = dashboards.browser  # The fixtures.
window = dashboards.window
replay = dashboards.replay


def history_of(shares: list[float], host: str = "node7") -> str:
    """A job whose ranks wait such parts of their steps, of one second each and a little more."""
    ranks = [
        {
            "place": place,
            "rank": place,
            "host": host,
            "state": "running",
            "step": 7,
            "step_seconds": 1 + 0.001 * place,
            "wait_share": share,
        }
        for place, share in enumerate(shares)
    ]
    picture = {"summary": "it runs", "state": "running", "epoch": 0, "lost": 0, "ranks": ranks}
    lines: list[dict[str, Any]] = [
        {"corro_history": 1, "time": 1_700_000_000, "job": "3f2a", "command": "train.py"},
        {"time": 1_700_000_001, **picture},
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def show(
    launcher: Launcher, window: dashboards.Window, replay: Callable[[Path], Any], text: str
) -> None:
    path = launcher.directory / "history.jsonl"
    path.write_text(text)
    (launcher.directory / "rank-0.log").touch()  # Or the page says that there is none.
    window.page.goto(replay(path).url)
    window.says("#summary", "it runs")


def test_of_many_ranks_two_histograms_show_how_they_differ(
    launcher: Launcher, window: dashboards.Window, replay: Callable[[Path], Any]
) -> None:
    shares = [0.4] * 40 + [0.42] * 23 + [0.01]
    show(launcher, window, replay, history_of(shares, host=dashboards.HOSTILE))
    window.says("#spread-text", "64 ranks. Those that wait least: rank 63 on <img")
    window.says("#spread-text", "(1 %), rank 0 on")
    waits = window.page.locator("#spread-wait rect")
    heights = [float(waits.nth(bar).get_attribute("height")) for bar in range(waits.count())]
    assert len(heights) == 3, "three values are in three bars"
    assert heights[1] == 96, "of which the one of 40 ranks is the highest"
    assert heights[2] == 55.2, "that of 23 ranks is in proportion"
    assert heights[0] == 2.4
    assert window.page.locator("#spread-step rect").count() == 24
    rows = window.page.locator("#spread-rows tr")
    cells = [rows.nth(row).locator("td").all_text_contents() for row in (0, 1)]
    assert cells[0] == ["a step takes", "1 s", "1.016 s", "1.032 s", "1.047 s", "1.063 s"]
    assert cells[1] == ["of that a rank waits", "1 %", "40 %", "40 %", "42 %", "42 %"]
    label = window.page.locator("#spread-wait").get_attribute("aria-label")
    assert label == "of that a rank waits: 1 % to 42 % on 64 ranks"
    assert window.page.locator("img").count() == 0, "names are text"
    window.page.set_viewport_size({"width": 360, "height": 760})
    assert window.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert window.troubles == []


def test_ranks_that_are_equal_are_one_bar_and_few_are_a_table_alone(
    launcher: Launcher, window: dashboards.Window, replay: Callable[[Path], Any]
) -> None:
    show(launcher, window, replay, history_of([0.25] * 8))
    window.says("#spread-wait-text", "25 % to 25 % from left to right, at most 8 ranks in a bar")
    assert window.page.locator("#spread-wait rect").count() == 1
    show(launcher, window, replay, history_of([0.25] * 7))
    assert window.page.locator("#spread").is_hidden()
    assert window.troubles == []
