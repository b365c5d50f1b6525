"""`corro run --dashboard` and `corro dash`: what a person sees in Chromium, and who sees nothing.

The page is looked at as it is served: no test calls a function of its script.
"""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from .conftest import DEADLINE, Job, Launcher, wait_until

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = Path("/usr/bin/chromium")  # Debian's; playwright brings no browser.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium: apt-get install chromium"),
]

# Both ranks go on until the file `end` is there; rank 1 rests as long as `rest` is.
STEPS = """
import os, time
import corro
import corro.numpy

corro.init()
step = 0
going = True
while going:
    step += 1
    corro.set_step(step)
    while corro.rank() == 1 and os.path.exists("rest"):
        time.sleep(0.01)
    going = corro.numpy.allreduce(float(not os.path.exists("end")), corro.Min) > 0
    time.sleep(0.02)
"""

ELASTIC = """
import os, time
import corro.elastic
import corro.numpy


@corro.elastic.run
def train(state):
    while not os.path.exists("end"):
        corro.numpy.allreduce(1.0)
        state.step += 1
        corro.set_step(state.step)
        state.commit()
        time.sleep(0.02)
    os._exit(0)  # The other rank may be a step behind.


corro.init()
train(corro.elastic.State(step=0))
"""

# Rank 1 prints these lines, and all wait until the file `end` is there.
PRINTS = """
import os, sys, time
import corro

corro.init()
if corro.rank() == 1:
    sys.stdout.write(open("lines").read())
    sys.stdout.flush()
while not os.path.exists("end"):
    time.sleep(0.01)
"""

# Rank 1 is slow, and the loss falls.
LOGS = """
import os, time
import corro
import corro.numpy

corro.init()
step, going = 0, True
while going:
    step += 1
    time.sleep(0.1 if corro.rank() == 1 else 0.001)
    corro.log({"loss": 2 / step + corro.rank(), HOSTILE[:31]: step}, step=step, of=100_000)
    going = corro.numpy.allreduce(float(not os.path.exists("end")), corro.Min) > 0
"""

ADDRESS = re.compile(r"^dashboard  (http://\S+/\?token=[0-9a-f]{64})\n", re.MULTILINE)
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"


@dataclass
class Shown:
    """A job with a dashboard."""

    job: Job
    screen: Path
    url: str = ""
    base: str = field(init=False, default="")
    token: str = field(init=False, default="")

    def read_address(self) -> Shown:
        wait_until(lambda: ADDRESS.search(self.screen.read_text()) is not None, "an address")
        self.url = ADDRESS.findall(self.screen.read_text())[0]
        parts = urlsplit(self.url)
        self.base = f"{parts.scheme}://{parts.netloc}"
        self.token = parts.query.removeprefix("token=")
        return self

    def ask(
        self, path: str, *, token: str | None = None, method: str = "GET", **head: str
    ) -> tuple[int, bytes]:
        """The status and the text for a program."""
        if token is not None:
            head["Authorization"] = f"Bearer {token}"
        try:
            request = urllib.request.Request(self.base + path, headers=head, method=method)
            with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def facts(self) -> dict[str, Any]:
        status, text = self.ask("/api/job", token=self.token)
        assert status == 200
        facts: dict[str, Any] = json.loads(text)
        return facts


def start(launcher: Launcher, script: Path, *options: object, ranks: int = 2) -> Shown:
    screen = launcher.directory / "screen"
    with screen.open("wb") as err:
        job = launcher.start(
            *("--dashboard", "127.0.0.1:0", "-np", ranks, *options, script),
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
    return Shown(job, screen).read_address()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    # Chromium's sandbox refuses root, who runs the tests of a container; the pages are our own.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as drivers:
        made = drivers.chromium.launch(executable_path=str(CHROMIUM), args=arguments)
        yield made
        made.close()


@dataclass
class Window:
    """A page, and what has gone wrong in it."""

    page: Any
    troubles: list[str]

    def says(self, place: str, text: str | re.Pattern[str]) -> None:
        locator = self.page.locator(place)
        playwright.expect(locator).to_contain_text(text, timeout=DEADLINE * 1000)

    def choose_log(self, place: int) -> None:
        self.page.fill("#log-place", str(place))
        self.page.locator("#log-place").blur()

    def lines(self) -> list[str]:
        """What is shown of a log."""
        texts: list[str] = self.page.locator("#log-box .said").all_text_contents()
        return texts

    def cell(self, place: int, column: str) -> str:
        row = self.page.locator("#ranks tr").nth(place)
        text: str = row.locator(f"td[data-label='{column}']").text_content()
        return text


@pytest.fixture
def window(browser: Any) -> Iterator[Window]:
    context = browser.new_context()
    yield watched(context)
    context.close()


def watched(context: Any) -> Window:
    window = Window(context.new_page(), [])
    window.page.on("pageerror", lambda error: window.troubles.append(str(error)))
    window.page.on("dialog", lambda dialog: window.troubles.append(dialog.message))
    window.page.on("console", lambda said: window.troubles.append(said.text))
    return window


def test_a_running_job_shows_its_steps_growing(launcher: Launcher, window: Window) -> None:
    shown = start(launcher, launcher.script(STEPS))
    window.page.goto(shown.url)
    assert window.page.url == shown.base + "/", "the token is in no history"
    window.says("#summary", re.compile(r"^2 ranks run; steps? \d+"))
    first = int(window.cell(0, "step"))
    wait_until(lambda: int(window.cell(0, "step")) > first, "another step is shown")
    assert [window.cell(place, "state") for place in (0, 1)] == ["● running"] * 2
    window.says("#rate-text", re.compile(r"now [\d.]+ / s, at most"))
    assert window.page.locator("#rate path").count() == 2
    assert window.page.locator("#events tr").count() == 4, "two ranks were started and have joined"
    (launcher.directory / "end").touch()
    window.says("#summary", "the job is over: every rank has done its work")
    window.says("#trouble", "The job is over.")
    assert [window.cell(place, "state") for place in (0, 1)] == ["✓ done"] * 2
    assert shown.job.wait() == 0
    assert window.troubles == []


def test_what_ranks_log_is_drawn_and_how_long_it_takes(launcher: Launcher, window: Window) -> None:
    shown = start(launcher, launcher.script(f"HOSTILE = {HOSTILE!r}\n{LOGS}"))
    window.page.goto(shown.url)
    loss = ".metric[data-name='loss']"
    window.says(f"{loss} .spread", re.compile(r"^[\d.]+ to [\d.]+ on 2 ranks$"))
    window.says(f"{loss} p", re.compile(r"^step \d+; [\d.]+ to [\d.]+ over \d+ s$"))
    wait_until(lambda: len(shown.facts()["metrics"][0]["points"]) > 3, "a course")
    line = window.page.locator(f"{loss} svg path")
    playwright.expect(line).to_have_attribute(
        "d", re.compile(r"^M0\.0 4\.0.*L.*L600\.0 97\.0$"), timeout=DEADLINE * 1000
    )  # It falls, from the left upper corner to the right lower one.
    window.says("#facts", re.compile(r"step\d+ of 100000leftabout \d+ (min|h)"))
    assert re.fullmatch(
        r"step \d+ of 100000, about \d+ (min|h) left",
        window.page.locator("#progress").get_attribute("aria-valuetext"),
    )
    window.says("#ranks-text", "The others wait for rank 1 in each step")
    assert window.cell(0, "of that waits").endswith(" %")
    assert window.cell(1, "step takes").endswith(" ms")
    assert window.page.locator("img").count() == 0, "names are text"
    assert window.page.locator(".metric figcaption").all_text_contents()[1] == HOSTILE[:31]
    metrics = shown.ask("/metrics", token=shown.token)[1].decode()
    assert re.search(r'^corro_log_value\{name="loss"\} [\d.]+$', metrics, re.MULTILINE)
    assert re.search(r"^corro_job_eta_seconds [\d.]+$", metrics, re.MULTILINE)
    steps = re.search(r"^corro_job_step_duration_seconds_count (\d+)$", metrics, re.MULTILINE)
    assert steps is not None
    assert int(steps[1]) > 0
    (launcher.directory / "end").touch()
    window.says("#summary", "the job is over")
    assert window.page.locator(loss).count() == 1
    assert shown.job.wait() == 0
    assert window.troubles == []


def test_a_rank_that_sleeps_is_named(launcher: Launcher, window: Window) -> None:
    rest = launcher.directory / "rest"
    rest.touch()
    shown = start(launcher, launcher.script(STEPS))
    window.page.goto(shown.url)
    window.says("#summary", "rank 0 waits for rank 1 in allreduce #1")
    assert window.page.locator("#summary.waiting").count() == 1
    assert window.cell(0, "waits for") == "rank 1"
    assert window.page.locator("tr.awaited td[data-label='rank']").all_text_contents() == ["1"]
    assert window.cell(1, "state") == "● running, awaited"
    window.says("#events", "rank 0 waits for rank 1")
    assert b"\ncorro_job_waits_total 1\n" in shown.ask("/metrics", token=shown.token)[1]
    rest.unlink()
    window.says("#summary", "2 ranks run")
    assert window.page.locator("tr.awaited").count() == 0
    window.says("#events", "nobody waits for it any more")
    assert window.troubles == []


def test_a_rank_that_is_killed_is_shown_with_the_reason(launcher: Launcher, window: Window) -> None:
    shown = start(launcher, launcher.script(STEPS))
    window.page.goto(shown.url)
    window.says("#summary", "2 ranks run; step")
    os.kill(int(window.cell(1, "pid")), signal.SIGKILL)
    window.says("#summary", re.compile(r"^the job has failed: killed by SIGKILL.*\(rank 1 on "))
    window.says("#trouble", "The job is over.")
    assert window.cell(1, "state") == "✕ failed"
    assert window.cell(1, "why") == "killed by SIGKILL"
    assert window.cell(0, "state") == "■ stopped", "it has only seen rank 1 go"
    window.says("#events tr:first-child", "failure")
    assert shown.job.wait() == 128 + signal.SIGKILL
    assert window.troubles == []


def test_an_elastic_job_goes_on_without_it(launcher: Launcher, window: Window) -> None:
    shown = start(launcher, launcher.script(ELASTIC), "--min-np", 1)
    window.page.goto(shown.url)
    window.says("#summary", "2 ranks run; step")
    before = shown.facts()
    os.kill(int(window.cell(1, "pid")), signal.SIGKILL)
    window.says("#summary", "1 rank runs; step")
    assert window.cell(1, "why") == "killed by SIGKILL"
    window.says("#facts", "epoch1")
    after = shown.facts()
    assert after["ranks"][1]["rank"] is None
    assert [rank["member"] for rank in after["ranks"]] == [
        rank["member"] for rank in before["ranks"]
    ]
    assert b"\ncorro_job_ranks_lost_total 1\n" in shown.ask("/metrics", token=shown.token)[1]
    (launcher.directory / "end").touch()
    window.says("#summary", "the job is over")
    assert window.troubles == []


def test_of_a_hang_the_log_of_the_awaited_rank_is_shown(launcher: Launcher, window: Window) -> None:
    (launcher.directory / "rest").touch()
    says = STEPS.replace(
        "    step += 1", '    step += 1\n    print(f"{corro.rank()}: step {step}")'
    )
    shown = start(launcher, launcher.script(says))
    window.page.goto(shown.url)
    window.says("#summary", "rank 0 waits for rank 1")
    window.says("#log-box", "1: step 1")
    assert window.page.locator("#log-place").input_value() == "1"
    window.says("#lost", "waiting for a rank")
    window.says("#goodput", re.compile(r"[\d.]+ % of .* were not lost"))
    window.says("#faults", "rank 0 waits for rank 1")
    window.choose_log(0)
    window.says("#log-box", "0: step 1")
    (launcher.directory / "rest").unlink()
    window.says("#log-box", "0: step 2")  # It follows.
    assert window.page.locator("#epochs-table").is_hidden()
    assert window.page.locator("#checkpoints-part").is_hidden()
    assert window.troubles == []


def test_of_a_death_the_log_of_the_dead_rank_is_shown(launcher: Launcher, window: Window) -> None:
    says = STEPS.replace("step = 0", 'step = 0\nprint(f"rank {corro.rank()} is here", flush=True)')
    shown = start(launcher, launcher.script(says))
    window.page.goto(shown.url)
    window.says("#log-box", "rank 0 is here")
    window.says("#summary", "2 ranks run; step")
    assert window.page.locator("#faults-part").is_hidden()
    os.kill(int(window.cell(1, "pid")), signal.SIGKILL)
    window.says("#trouble", "The job is over.")
    window.says("#log-box", "rank 1 is here")
    window.says("#faults", re.compile("failure.*killed by SIGKILL"))
    shown.job.wait()
    assert window.troubles == []


def test_a_change_of_members_is_shown_with_its_reason(launcher: Launcher, window: Window) -> None:
    shown = start(launcher, launcher.script(ELASTIC), "--min-np", 1, "--max-np", 2)
    window.page.goto(shown.url)
    window.says("#summary", "2 ranks run; step")
    os.kill(int(window.cell(1, "pid")), signal.SIGKILL)
    window.says("#epochs", "rank 1: killed by SIGKILL")
    window.says("#epochs", "rank 1 was killed by SIGKILL")
    window.says("#epochs tr:first-child td[data-label='came']", "rank 1")  # The one after it.
    window.says("#lost", "change of members")
    window.says("#faults", "killed by SIGKILL")
    marks = window.page.locator("#time .time-mark").count()
    assert marks == window.page.locator("#epochs tr").count() - 1
    (launcher.directory / "end").touch()
    window.says("#summary", "the job is over")
    assert window.troubles == []


def test_lines_of_a_log_are_text_and_are_found(launcher: Launcher, window: Window) -> None:
    lines = [f"line {number}" for number in range(1, 1201)]
    lines[0] = f"\x1b[31m{HOSTILE}\x1b[0m\x00 \u202eabc"
    (launcher.directory / "lines").write_text("\n".join(lines) + "\n")
    shown = start(launcher, launcher.script(PRINTS))
    window.page.goto(shown.url)
    window.says("#log-text", "Rank 0 has printed nothing.")
    window.choose_log(1)
    window.says("#log-box", "line 1200")
    assert window.lines()[-1] == "line 1200"
    while window.page.locator("#log-older").is_visible():
        oldest = window.lines()[0]
        window.page.click("#log-older")
        first = playwright.expect(window.page.locator("#log-box .said").first)
        first.not_to_have_text(oldest, timeout=DEADLINE * 1000)
    assert window.lines() == [f"{HOSTILE}\N{SYMBOL FOR NULL} \u202eabc", *lines[1:]]
    assert window.page.locator("#log-box .number").last.text_content() == "1200"
    window.page.fill("#log-search", "ONERROR")
    window.page.keyboard.press("Enter")
    window.says("#log-text", "1 line has this text")
    assert window.lines() == [f"{HOSTILE}\N{SYMBOL FOR NULL} \u202eabc"]
    window.page.fill("#log-search", "Line 700")
    window.page.keyboard.press("Enter")
    window.says("#log-box", "line 700")
    window.page.click(".jump")
    window.says(".log-line.marked", "700line 700")
    assert not window.page.locator("#log-follow").is_checked()
    window.page.check("#log-follow")
    window.says("#log-box", "line 1200")
    assert window.page.locator("img").count() == 0
    assert window.troubles == []


def test_a_log_is_read_in_parts_and_by_its_number_alone(launcher: Launcher) -> None:
    much = "".join(f"{number:099d}\n" for number in range(300_000))  # 30 MB
    (launcher.directory / "lines").write_text(much)
    shown = start(launcher, launcher.script(PRINTS))
    log = shown.job.logs / "rank-1.log"
    wait_until(lambda: log.exists() and log.stat().st_size == len(much), "all is printed")
    status, text = shown.ask("/api/logs?place=1", token=shown.token)
    assert status == 200
    assert len(text) < 1 << 20
    assert json.loads(text)["size"] == len(much)
    assert json.loads(text)["lines"][-1][2] == much[-100:-1]
    status, text = shown.ask("/api/logs?search=99999", token=shown.token)
    found = json.loads(text)
    assert {match[0] for match in found["matches"]} == {1}
    assert found["unread"] >= len(much) - (16 << 20)
    assert shown.ask("/api/logs?place=2", token=shown.token)[0] == 404
    for wrong in ("", "?place=-1", "?place=1/../../lines", "?place=1%00", "?place=rank-1.log"):
        assert shown.ask("/api/logs" + wrong, token=shown.token)[0] == 400, wrong
    assert shown.ask("/api/logs?place=1")[0] == 403


def test_hostile_text_is_text(launcher: Launcher, window: Window) -> None:
    fails = (
        "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
        f"raise ValueError({HOSTILE!r})\n"
    )
    shown = start(launcher, launcher.script(fails, HOSTILE + ".py"), ranks=1)
    window.page.goto(shown.url)
    window.says("#command", HOSTILE + ".py")
    (launcher.directory / "go").touch()
    window.says("#summary", "the job has failed: ValueError: " + HOSTILE)
    window.says("#events", "ValueError: " + HOSTILE)
    assert window.page.locator("img").count() == 0
    assert window.page.title().startswith("failed · ")
    shown.job.wait()
    assert window.troubles == []


def test_nobody_sees_anything_without_the_token(launcher: Launcher, window: Window) -> None:
    shown = start(launcher, launcher.script(STEPS), "--events", "events.jsonl")
    for path in ("/", "/dashboard.js", "/api/job", "/metrics"):
        assert shown.ask(path)[0] == 403
        assert shown.ask(path, token="0" * 64)[0] == 403
        assert shown.ask(f"{path}?token={'0' * 64}")[0] == 403
        assert shown.ask(path, Cookie=f"token={shown.token}")[0] == 403
        assert shown.ask(path, token=shown.token)[0] == 200
    assert shown.ask("/api/job", token=shown.token, Host="evil.example")[0] == 421
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with opener.open(shown.url, timeout=DEADLINE) as reply:
        assert reply.url == shown.base + "/"
    with opener.open(shown.base + "/api/job", timeout=DEADLINE) as reply:
        assert json.load(reply)["state"] in ("running", "waiting", "opening")
    assert window.page.goto(shown.base + "/").status == 403
    window.says("body", "open the whole address, with its token")
    # Where others could read it.
    window.troubles.clear()
    window.page.goto(shown.url)
    window.says("#summary", "2 ranks run; step")
    ranks = [int(window.cell(place, "pid")) for place in (0, 1)]
    for pid in (shown.job.process.pid, *ranks):
        for name in ("cmdline", "environ"):
            assert shown.token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    (launcher.directory / "end").touch()
    assert shown.job.wait() == 0
    for file in launcher.directory.rglob("*"):
        if file.is_file() and file != shown.screen:
            assert shown.token not in file.read_text(), file


def test_a_launcher_that_is_gone_is_said(launcher: Launcher, window: Window) -> None:
    shown = start(launcher, launcher.script(STEPS))
    window.page.goto(shown.url)
    window.says("#summary", "2 ranks run; step")
    shown.job.send(signal.SIGKILL)
    window.says("#trouble", "The launcher does not answer since")
    window.says("#summary", "2 ranks run; step")


def test_it_is_readable_on_a_narrow_dark_screen_and_by_keys(
    launcher: Launcher, browser: Any, tmp_path: Path
) -> None:
    (launcher.directory / "rest").touch()
    shown = start(launcher, launcher.script(STEPS))
    context = browser.new_context(viewport={"width": 360, "height": 760}, color_scheme="dark")
    window = watched(context)
    window.page.goto(shown.url)
    window.says("#summary", "rank 0 waits for rank 1")
    assert window.page.evaluate("document.documentElement.scrollWidth") <= 360
    back = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == "rgb(18, 22, 28)"
    window.page.keyboard.press("Tab")
    outline = window.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    window.page.screenshot(path=tmp_path / "narrow-dark.png", full_page=True)
    assert (tmp_path / "narrow-dark.png").stat().st_size > 0
    context.close()
    assert window.troubles == []


def test_a_port_that_is_taken_is_one_line_before_any_rank(launcher: Launcher) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        job = launcher.run("--dashboard", address, "-np", 2, "touch", "started")
    assert job.process.returncode == 2
    lines = job.err.decode().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"corro run: --dashboard {address}: ")
    assert "Address already in use" in lines[0]
    assert not (launcher.directory / "started").exists()


def test_a_job_that_was_started_without_it_is_shown_to_who_asks(
    launcher: Launcher, window: Window
) -> None:
    job = launcher.start("-np", 2, launcher.script(STEPS), stdout=subprocess.DEVNULL)
    asked = [str(launcher.program), "dash", str(job.process.pid)]

    def address() -> str:
        done = subprocess.run(asked, capture_output=True, timeout=DEADLINE, check=False, text=True)
        return done.stdout if done.returncode == 0 else ""

    wait_until(lambda: address() != "", "the launcher answers")
    screen = launcher.directory / "screen"
    screen.write_text(address())
    shown = Shown(job, screen).read_address()
    assert shown.ask("/api/job")[0] == 403
    window.page.goto(shown.url)
    window.says("#summary", re.compile(r"2 ranks run; step \d+"))
    assert address() == screen.read_text(), "there is one page, and one token"
    assert shown.token not in (job.logs / "history.jsonl").read_text()
    (launcher.directory / "end").touch()
    job.wait()
    done = subprocess.run(asked, capture_output=True, timeout=DEADLINE, check=False, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("corro dash: ")


@pytest.fixture
def replay(launcher: Launcher) -> Iterator[Callable[[Path], Shown]]:
    """Starts `corro dash`, which ends by Ctrl-C."""
    started: list[subprocess.Popen[bytes]] = []

    def start_replay(path: Path) -> Shown:
        screen = launcher.directory / f"replay-{len(started)}"
        with screen.open("wb") as out:
            started.append(subprocess.Popen([launcher.program, "dash", path], stdout=out))
        return Shown(Job(started[-1], path), screen).read_address()

    yield start_replay
    for process in started:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=DEADLINE) == 0


def test_a_job_that_is_over_is_shown_at_any_time_of_it(
    launcher: Launcher, window: Window, replay: Callable[[Path], Shown]
) -> None:
    says = ELASTIC.replace("corro.init()", 'corro.init()\nprint("here I am", flush=True)')
    shown = start(launcher, launcher.script(says), "--min-np", 1)
    wait_until(lambda: shown.facts()["summary"].startswith("2 ranks run; step"), "it runs")
    os.kill(shown.facts()["ranks"][1]["pid"], signal.SIGKILL)
    wait_until(lambda: shown.facts()["summary"].startswith("1 rank runs; step"), "it goes on")
    (launcher.directory / "end").touch()
    shown.job.wait()
    past = replay(shown.job.logs)
    window.page.goto(past.url)
    window.says("#summary", "the job is over: every rank has done its work")
    window.says("#epochs", "rank 1: killed by SIGKILL")
    window.says("#log-box", "here I am")
    assert window.page.locator("#trouble").is_hidden()
    assert window.cell(1, "why") == "killed by SIGKILL"
    window.page.focus("#history-time")
    window.page.keyboard.press("Home")
    window.says("#history-text", ": 0 s after the beginning")
    window.says("#summary", re.compile("^$"))  # No rank was started.
    window.page.keyboard.press("End")
    window.says("#summary", "the job is over")
    history = past.facts()["history"]
    running = json.loads(past.ask(f"/api/job?at={history['to'] - 1e-3}", token=past.token)[1])
    assert running["state"] != "done"
    assert past.ask("/api/job?at=x", token=past.token)[0] == 400
    assert past.ask("/api/job")[0] == 403
    assert window.troubles == []


def test_of_ten_thousand_ranks_one_sees_those_of_interest_and_finds_any(
    launcher: Launcher, window: Window, replay: Callable[[Path], Shown]
) -> None:
    ranks = [
        {"place": place, "host": f"node{place // 8}", "state": "running", "step": 7}
        for place in range(10_000)
    ]
    ranks[7321].update(state="failed", cause="killed by SIGKILL")
    picture = {"summary": "it runs", "state": "running", "epoch": 0, "lost": 1, "ranks": ranks}
    lines = [{"corro_history": 1, "time": 1000, "job": "big", "command": "x"}]
    (launcher.directory / "history.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in [*lines, {"time": 1001} | picture])
    )
    (launcher.directory / "rank-7321.log").touch()
    window.page.goto(replay(launcher.directory).url)
    window.says("#rank-part", "1 to 200 of 10000")
    assert window.page.locator("#ranks tr").count() == 200
    first = window.page.locator("#ranks tr").first
    playwright.expect(first).to_contain_text("killed by SIGKILL")
    assert len(window.page.content()) < 200_000, "the rest is not in the page"
    window.page.click("#rank-after")
    window.says("#rank-part", "201 to 400 of 10000")
    window.page.fill("#rank-search", "node1249")
    window.says("#rank-part", "1 to 8 of 8")
    playwright.expect(first).to_contain_text("9992")
    window.page.fill("#rank-search", "nobody")
    window.says("#rank-part", "none of 0")
    assert window.troubles == []


def test_a_history_whose_launcher_was_killed_says_where_it_ends(
    launcher: Launcher, window: Window, replay: Callable[[Path], Shown]
) -> None:
    job = launcher.start("-np", 2, launcher.script(STEPS), stdout=subprocess.DEVNULL)
    history = job.logs / "history.jsonl"
    wait_until(lambda: history.exists() and '"step":' in history.read_text(), "steps are kept")
    job.send(signal.SIGKILL)
    job.wait()
    whole = history.read_bytes()
    assert json.loads(whole.splitlines()[0])["corro_history"] == 1
    history.write_bytes(whole[:-9])
    window.page.goto(replay(history).url)
    window.says("#trouble", "The last line of the history is cut off")
    window.says("#facts", re.compile("job is(running|opening|waiting)"))
    assert window.troubles == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "no such file"),
        ("", "no history of a job"),
        ('{"corro_history": 2, "time": 5}\n', "it is of version 2"),
        ("\x00\xff\n", "no history of a job"),
    ],
)
def test_what_is_no_history_is_one_line(launcher: Launcher, text: str | None, why: str) -> None:
    if text is not None:
        (launcher.directory / "history.jsonl").write_text(text)
    asked = [launcher.program, "dash", str(launcher.directory)]
    done = subprocess.run(asked, capture_output=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("corro dash: ")
    assert why in lines[0]
