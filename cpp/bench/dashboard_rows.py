"""Rows of the dashboard: how soon its page can be read in Chromium, and what it costs a job."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jobs import CORRO, OUT, PYTHON, Effort, Family, corro_run, note
from processes import started
from rows import Row, missing

CHROMIUM = Path("/usr/bin/chromium")  # Debian's; playwright brings no browser.
RANKS, MANY = 2, 10_000
FRESH, LARGE = "page of a fresh job", f"page of {MANY} ranks"
MEMORY, COST = f"memory of the page of {MANY} ranks", "processor time beside the ranks"
UNITS = {FRESH: "ms", LARGE: "ms", MEMORY: "MB", COST: "% of a core"}
BARS = {FRESH: 300.0, LARGE: 1000.0, MEMORY: 50.0, COST: 0.1}
ADDRESS = re.compile(r"^dashboard  (\S+)$", re.MULTILINE)
PATIENCE = 60.0  # Seconds.
SETTLED = 3.0  # Seconds after which a job has begun.

# Steps of about 20 ms; the job is ended from outside.
STEPS = """
import time
import corro
import corro.numpy

corro.init()
step = 0
while True:
    step += 1
    time.sleep(0.02)
    corro.log({"loss": 1 / step}, step=step)
    corro.numpy.allreduce(1.0)
"""

READABLE = {
    FRESH: "() => document.querySelector('#summary').textContent.includes('ranks run')",
    LARGE: "() => document.querySelectorAll('#ranks tr').length >= 200",
}


@contextmanager
def served(command: Sequence[str], folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The process and the address of its page."""
    log = folder / "screen"
    with started(command, log) as process:
        end = time.monotonic() + PATIENCE
        while not (address := ADDRESS.search(log.read_text())):
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"dashboard: {command}\n{log.read_text()}")
            time.sleep(0.01)
        yield process, address[1]


def job(folder: Path, *options: str) -> list[str]:
    script = folder / "steps.py"
    script.write_text(STEPS)
    return corro_run(RANKS, *options, str(PYTHON), str(script))


def history_of_many(folder: Path) -> Path:
    ranks = [
        {"place": place, "rank": place, "host": f"node{place // 8}", "state": "running", "step": 7}
        for place in range(MANY)
    ]
    picture = {"summary": "it runs", "state": "running", "epoch": 0, "lost": 0, "ranks": ranks}
    lines = [{"corro_history": 1, "time": 1000, "job": "big", "command": "x"}]
    path = folder / "history.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (*lines, {"time": 1001} | picture)))
    (folder / "rank-0.log").touch()
    return path


class Browser:
    """A Chromium; each visit is of somebody who was never there."""

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium

    def visit(self, address: str, case: str) -> tuple[float, float]:
        """Milliseconds until the page can be read, and its script's memory in MB."""
        context = self._chromium.new_context()
        page = context.new_page()
        begin = time.perf_counter()
        page.goto(address, wait_until="commit")
        page.wait_for_function(READABLE[case], timeout=PATIENCE * 1000)
        taken = (time.perf_counter() - begin) * 1e3
        metrics = context.new_cdp_session(page)
        metrics.send("Performance.enable")
        listed = metrics.send("Performance.getMetrics")["metrics"]
        [heap] = [one["value"] for one in listed if one["name"] == "JSHeapUsedSize"]
        context.close()
        return taken, heap / 1e6

    @contextmanager
    def open(self, address: str) -> Iterator[None]:
        """A page that stays open."""
        context = self._chromium.new_context()
        context.new_page().goto(address)
        yield
        context.close()


@contextmanager
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as drivers:
        # Its sandbox refuses root; the pages are our own.
        chromium = drivers.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        try:
            yield Browser(chromium)
        finally:
            chromium.close()


def seconds_of(pids: Sequence[int]) -> float:
    """Processor time of all threads of these processes."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def parents_of(launcher: int) -> list[int]:
    """The launcher and what it has started, the agent, but not the ranks."""
    found, new = [launcher], [launcher]
    while new:
        children = []
        for pid in new:
            with suppress(OSError):
                children += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        new = [pid for pid in children if b"CORRO_RANK=" not in environment_of(pid)]
        found += new
    return found


def environment_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def busy_share(process: subprocess.Popen[bytes], seconds: float) -> float:
    """The part of a core in percent that launcher and agent use."""
    pids = parents_of(process.pid)
    before, begin = seconds_of(pids), time.monotonic()
    time.sleep(seconds)
    return (seconds_of(pids) - before) / (time.monotonic() - begin) * 100


def visits(folder: Path, chromium: Browser, times: int) -> dict[str, list[float]]:
    """Milliseconds of each visit, of two pages, and megabytes of one of them."""
    found: dict[str, list[float]] = {FRESH: [], LARGE: [], MEMORY: []}
    with served(job(folder, "--dashboard", "127.0.0.1:0"), folder) as (_, page):
        chromium.visit(page, FRESH)  # Chromium's own first page is slow.
        for _ in range(times):
            note(f"dashboard: {FRESH}")
            found[FRESH].append(chromium.visit(page, FRESH)[0])
    (folder / "screen").unlink()
    with served([str(CORRO), "dash", str(history_of_many(folder))], folder) as (_, page):
        for _ in range(times):
            note(f"dashboard: {LARGE}")
            taken, memory = chromium.visit(page, LARGE)
            found[LARGE].append(taken)
            found[MEMORY].append(memory)
    return found


def cost(folder: Path, chromium: Browser, seconds: float) -> float:
    """What launcher and agent use where a page asks once a second, beyond what they use without."""
    note(f"dashboard: {COST}")
    (folder / "screen").unlink(missing_ok=True)
    with started(job(folder), folder / "screen") as process:
        time.sleep(SETTLED)
        alone = busy_share(process, seconds)
    (folder / "screen").unlink()
    shown = job(folder, "--dashboard", "127.0.0.1:0")
    with served(shown, folder) as (process, page), chromium.open(page):
        time.sleep(SETTLED)
        return busy_share(process, seconds) - alone


def measure_dashboard(effort: Effort) -> list[Row]:
    if not CHROMIUM.exists() or not find_spec("playwright"):
        return [missing("dashboard", {"case": case, "min": None, "max": None}) for case in BARS]
    with tempfile.TemporaryDirectory(dir=OUT, prefix="dashboard-") as name, browser() as chromium:
        folder = Path(name)
        found = visits(folder, chromium, effort.of(9, 3))
        seconds = float(effort.of(20, 5))
        found[COST] = [cost(folder, chromium, seconds) for _ in range(effort.rounds)]
    return [row_of(case, taken) for case, taken in found.items()]


def row_of(case: str, taken: Sequence[float]) -> Row:
    columns = {"case": case, "min": min(taken), "max": max(taken)}
    median, bar = statistics.median(taken), BARS[case]
    return Row("dashboard", columns, median, None, bar, median <= bar, UNITS[case])


FAMILIES = {"dashboard": Family(measure_dashboard, quick=False)}
