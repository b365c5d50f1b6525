"""What goes from host to host, as the dashboard of a job shows it."""

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

NOTHING = "\N{EN DASH}"

# Each rank sends 1 MiB to the other one, again and again.
SENDS = """
import os
import numpy
import corro
import corro.numpy

corro.init()
values = numpy.ones(1 << 19, numpy.float32)
going = 1.0
while going:
    corro.numpy.allreduce(values)
    going = corro.numpy.allreduce(float(not os.path.exists("end")), corro.Min)
"""


def history_of(links: list[tuple[str, str | None, int]]) -> str:
    """A job over whose links as much again goes in its second second."""
    picture = {"summary": "it runs", "state": "running", "epoch": 0, "lost": 0}
    ranks = [{"place": 0, "rank": 0, "host": "node0", "state": "running"}]
    lines: list[dict[str, Any]] = [
        {"corro_history": 1, "time": 1_700_000_000, "job": "3f2a", "command": "train.py"}
    ]
    for second in (1, 2):
        counted = [{"from": a, "to": b, "bytes": second * sent} for a, b, sent in links]
        lines.append({"time": 1_700_000_000 + second, **picture, "ranks": ranks, "links": counted})
    return "".join(json.dumps(line) + "\n" for line in lines)


def rows_of(window: dashboards.Window) -> list[list[str]]:
    rows = window.page.locator("#link-rows tr")
    return [rows.nth(row).locator("td").all_text_contents() for row in range(rows.count())]


def test_of_few_hosts_there_is_a_matrix(
    launcher: Launcher, window: dashboards.Window, replay: Callable[[Path], Any]
) -> None:
    sent = [("a", "b", 8_000_000), ("b", "a", 1_500_000), ("b", dashboards.HOSTILE, 300)]
    show(launcher, window, replay, history_of([*sent, ("b", None, 10)]))
    window.says("#links-text", "Most goes from a to b: 8.0 MB/s.")
    columns = window.page.locator("#link-head th").all_text_contents()
    assert columns == ["from \\ to", dashboards.HOSTILE, "a", "b", "others"]
    assert rows_of(window) == [
        ["a", NOTHING, NOTHING, "8.0 MB/s, 16 MB in all", NOTHING],
        ["b", "300 B/s, 600 B in all", "1.5 MB/s, 3.0 MB in all", NOTHING, "10 B/s, 20 B in all"],
    ]
    cells = window.page.locator("#link-rows tr").nth(0).locator("td")
    assert cells.nth(3).get_attribute("class") == "shade-4"
    assert window.page.locator("img").count() == 0, "names are text"
    window.page.set_viewport_size({"width": 360, "height": 760})
    assert window.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert window.troubles == []


def test_of_many_hosts_the_busiest_pairs_are_named(
    launcher: Launcher, window: dashboards.Window, replay: Callable[[Path], Any]
) -> None:
    ring = [(f"n{host:02}", f"n{(host + 1) % 30:02}", 1000 * (host + 1)) for host in range(30)]
    show(launcher, window, replay, history_of([*ring, ("n00", "n07", 5)]))
    window.says("#links-text", "30 hosts; the 20 pairs over which most goes.")
    rows = rows_of(window)
    assert len(rows) == 20
    assert rows[0] == ["n29", "n00", "30 kB/s", "60 kB"]
    assert rows[19] == ["n10", "n11", "11 kB/s", "22 kB"]
    assert window.troubles == []


def test_a_running_job_shows_what_its_ranks_send(
    launcher: Launcher, window: dashboards.Window
) -> None:
    script = launcher.script(SENDS)
    shown = dashboards.start(launcher, script, "--env", "CORRO_TRANSPORT=tcp")
    window.page.goto(shown.url)
    window.says("#links-text", re.compile(r"Most goes from (\S+) to \1: [\d.]+ .?B/s"))
    wait_until(lambda: shown.facts()["links"][0]["bytes"] > 100_000_000, "100 MB were sent")
    [link] = shown.facts()["links"]
    assert link["from"] == link["to"] == shown.facts()["ranks"][0]["host"]
    assert link["bytes_per_second"] > 0
    metrics = shown.ask("/metrics", token=shown.token)[1].decode()
    assert re.search(r'^corro_job_link_sent_bytes_total\{from="\S+",to="\S+"\} \d+$', metrics, re.M)
    (launcher.directory / "end").touch()
    window.says("#summary", "the job is over")
    assert shown.job.wait() == 0
    assert window.troubles == []


def test_ranks_that_share_memory_have_no_links(
    launcher: Launcher, window: dashboards.Window
) -> None:
    shown = dashboards.start(launcher, launcher.script(SENDS))
    window.page.goto(shown.url)
    window.says("#summary", "2 ranks run")
    wait_until(lambda: shown.facts()["ranks"][0]["operation"] is not None, "they have begun")
    assert window.page.locator("#links").is_hidden()
    (launcher.directory / "end").touch()
    assert shown.job.wait() == 0
    assert window.troubles == []
