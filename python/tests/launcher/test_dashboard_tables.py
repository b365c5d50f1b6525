"""The tables of a job's parameter server, as its dashboard shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import test_dashboard as dashboards
from .conftest import Launcher, wait_until
from .test_dashboard_spread import show

pytestmark = dashboards.pytestmark
browser = dashboards.browser  # The fixtures.
window = dashboards.window
replay = dashboards.replay

# Each rank pulls and pushes the same 1000 rows of two tables, again and again.
TRAINS = """
import os, time
import numpy as np
import corro.table, corro.numpy

corro.init()
users = corro.table.Table("users", 4, optimizer=corro.table.SGD(lr=0.1), replicas=0)
words = corro.table.Table("words", 8, optimizer=corro.table.Adagrad(lr=0.1), replicas=0)
ids = np.arange(1000)
going = 1.0
while going:
    users.push(ids, users.pull(ids) + 1.0)
    words.push(ids[:10], words.pull(ids[:10]) + 1.0)
    going = corro.numpy.allreduce(float(not os.path.exists("end")), corro.Min)
    time.sleep(0.005)
"""


def history_of(parts: list[dict[str, Any]]) -> str:
    """A job of whose servers each has pulled as much again in its second second."""
    picture = {"summary": "it runs", "state": "running", "epoch": 0, "lost": 0}
    ranks = [{"place": 0, "rank": 0, "host": "node0", "state": "running"}]
    lines: list[dict[str, Any]] = [
        {"corro_history": 1, "time": 1_700_000_000, "job": "3f2a", "command": "train.py"}
    ]
    for second in (1, 2):
        tables = [{**part, "pulls": part["pulls"] * second} for part in parts]
        lines.append({"time": 1_700_000_000 + second, **picture, "ranks": ranks, "tables": tables})
    return "".join(json.dumps(line) + "\n" for line in lines)


def part_of(table: str, server: int, **counts: float) -> dict[str, Any]:
    part: dict[str, Any] = {"table": table, "server": server, "host": f"node{server}"}
    part |= {"rows": 0, "bytes": 0, "shards": 0, "steps": 7, "pulls": 0, "pulled_rows": 0}
    return part | {"pushes": 0, "pushed_rows": 0, "pull_p99_seconds": None} | counts


def rows_of(window: dashboards.Window) -> list[list[str]]:
    rows = window.page.locator("#table-rows tr")
    return [rows.nth(row).locator("td").all_text_contents() for row in range(rows.count())]


def test_servers_are_added_up_and_each_is_shown(
    launcher: Launcher, window: dashboards.Window, replay: Callable[[Path], Any]
) -> None:
    parts = [
        part_of("ads", 0, rows=1_234_567, bytes=80_000_000, shards=6, pulls=30),
        part_of("ads", 1, rows=1000, bytes=64_000, shards=2, pulls=12, pull_p99_seconds=0.0125),
        part_of(dashboards.HOSTILE, 0, rows=3, bytes=192, shards=8),
    ]
    show(launcher, window, replay, history_of(parts))
    window.says("#tables-text", "2 tables: 1 235 570 rows, replicas among them, in 80 MB")
    none = "\N{EN DASH}"
    still = ["0/s", "0/s"]
    assert rows_of(window) == [
        ["ads", "all 2", "", "1 235 567", "80 MB", "8", "7", "42/s", *still, "12.5 ms"],
        ["ads", "0", "node0", "1 234 567", "80 MB", "6", "7", "30/s", *still, none],
        ["ads", "1", "node1", "1 000", "64 kB", "2", "7", "12/s", *still, "12.5 ms"],
        [dashboards.HOSTILE, "0", "node0", "3", "192 B", "8", "7", "0/s", *still, none],
    ]
    assert window.page.locator("img").count() == 0, "names are text"
    window.page.set_viewport_size({"width": 360, "height": 760})
    assert window.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert window.troubles == []


@pytest.mark.parametrize("servers", ["2", "ranks"])
def test_a_running_job_shows_its_tables(
    launcher: Launcher, window: dashboards.Window, servers: str
) -> None:
    shown = dashboards.start(launcher, launcher.script(TRAINS), "--servers", servers)
    window.page.goto(shown.url)
    window.says("#tables-text", re.compile(r"^2 tables: 1 010 rows, replicas among them, in "))
    wait_until(
        lambda: all(part["pull_p99_seconds"] > 0 for part in shown.facts()["tables"]), "pulls"
    )
    parts = shown.facts()["tables"]
    assert [(part["table"], part["server"]) for part in parts] == [
        ("users", 0), ("users", 1), ("words", 0), ("words", 1)
    ]  # fmt: skip
    assert sum(part["rows"] for part in parts[:2]) == 1000
    assert sum(part["rows"] for part in parts[2:]) == 10
    assert all(part["host"] and part["bytes"] > 0 and part["shards"] > 0 for part in parts)
    for part in parts:
        pushed = part["pushed_rows"] / part["rows"]
        assert abs(pushed - 2 * part["steps"]) <= 2, "each rank pushes each row in each step"
    wait_until(lambda: shown.facts()["tables"][0]["pushes_per_second"] > 0, "a rate")
    assert window.page.locator("#table-rows tr.sum").count() == 2
    metrics = shown.ask("/metrics", token=shown.token)[1].decode()
    found = re.findall(
        r'^corro_job_table_rows\{table="users",server="[01]"\} (\d+)$', metrics, re.M
    )
    assert sum(map(int, found)) == 1000
    (launcher.directory / "end").touch()
    window.says("#summary", "the job is over")
    assert shown.job.wait() == 0
    assert window.troubles == []


def test_without_tables_there_is_no_section(
    launcher: Launcher, window: dashboards.Window, replay: Callable[[Path], Any]
) -> None:
    show(launcher, window, replay, history_of([]))
    assert window.page.locator("#tables").is_hidden()
    assert window.troubles == []
