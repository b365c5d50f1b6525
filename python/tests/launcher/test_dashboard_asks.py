"""What the page asks the ranks on demand: their stacks, and a trace of their last steps."""

from __future__ import annotations

import json
from typing import Any

from . import test_dashboard as dashboards
from .conftest import Launcher, wait_until

pytestmark = dashboards.pytestmark
browser = dashboards.browser  # The fixtures.
window = dashboards.window

# As STEPS, and where rank 1 rests has a name that a careless page would run.
RESTS = dashboards.STEPS.replace(
    "        time.sleep(0.01)\n", "        lazy['<img src=x onerror=alert(1)>']()\n", 1
).replace(
    "step = 0\n",
    "lazy = {}\n"
    "exec(compile('def rest(): time.sleep(0.01)', '<img src=x onerror=alert(1)>', 'exec'))\n"
    "lazy['<img src=x onerror=alert(1)>'] = rest\n"
    "step = 0\n",
    1,
)


def post(shown: dashboards.Shown, path: str, **head: str) -> tuple[int, dict[str, Any]]:
    status, text = shown.ask(path, token=shown.token, method="POST", **head)
    return status, json.loads(text) if text.startswith(b"{") else {"text": text.decode()}


def test_stacks_are_shown_by_rank_when_somebody_asks(
    launcher: Launcher, window: dashboards.Window
) -> None:
    rest = launcher.directory / "rest"
    rest.touch()
    shown = dashboards.start(launcher, launcher.script(RESTS), ranks=3)
    window.page.goto(shown.url)
    window.says("#summary", "ranks 0,2 wait for rank 1 in allreduce #1")
    assert window.page.locator("#stacks details").count() == 0, "nobody has asked"
    window.page.locator("#ask-stacks").focus()
    window.page.keyboard.press("Enter")
    window.says("#inspect-text", "ranks that do the same stand together")
    groups = window.page.locator("#stacks details")
    assert groups.locator("summary").all_text_contents() == ["ranks 0,2", "rank 1"]
    stacks = groups.locator("pre").all_text_contents()
    assert "in run_allreduce" in stacks[0]
    assert "<img src=x onerror=alert(1)>:1 in rest" in stacks[1]
    assert window.page.locator("img").count() == 0, "names of files are text"
    window.page.reload()
    window.says("#stacks", "in rest")  # Whoever comes later sees them, too.
    rest.unlink()
    (launcher.directory / "end").touch()
    window.says("#summary", "the job is over")
    assert window.page.locator("#ask-stacks").is_disabled()
    assert window.page.locator("#stacks").is_visible()
    assert shown.job.wait() == 0
    assert window.troubles == []


def test_a_trace_is_kept_as_a_file(launcher: Launcher, window: dashboards.Window) -> None:
    shown = dashboards.start(launcher, launcher.script(dashboards.STEPS))
    window.page.goto(shown.url)
    wait_until(lambda: (shown.facts()["ranks"][0]["step"] or 0) > 5, "some steps")
    window.page.fill("#trace-steps", "2")
    with window.page.expect_download() as coming:
        window.page.keyboard.press("Enter")
    path = launcher.directory / "kept.json"
    coming.value.save_as(path)
    assert coming.value.suggested_filename == "corro-trace.json"
    events = json.loads(path.read_text())["traceEvents"]
    assert {one["pid"] for one in events} == {0, 1}
    assert any("allreduce" in one["name"] for one in events)
    window.says("#inspect-text", "corro-trace.json: open it at ui.perfetto.dev")
    (launcher.directory / "end").touch()
    assert shown.job.wait() == 0
    assert window.troubles == []


def test_programs_ask_by_a_post_and_other_sites_do_not(launcher: Launcher) -> None:
    shown = dashboards.start(launcher, launcher.script(dashboards.STEPS))
    wait_until(lambda: shown.facts()["ranks"][1]["step"] is not None, "both ranks run")
    assert shown.ask("/api/stacks", method="POST")[0] == 403
    assert post(shown, "/api/stacks", Origin="http://evil.example")[0] == 403
    assert post(shown, "/api/job")[0] == 405
    status, text = shown.ask("/api/trace.json", token=shown.token)
    assert status == 404
    assert b"POST /api/trace" in text
    assert post(shown, "/api/trace?steps=0")[0] == 400
    assert json.loads(shown.ask("/api/stacks", token=shown.token)[1])["state"] == "none"
    assert post(shown, "/api/stacks", Origin=shown.base) == (
        202,
        {"state": "asked", "asked": None, "why": None, "text": ""},
    )
    last: dict[str, Any] = {}

    def answered() -> bool:
        last.update(json.loads(shown.ask("/api/stacks", token=shown.token)[1]))
        return last["state"] == "answered"

    wait_until(answered, "the stacks")
    assert "main thread" in last["text"]
    (launcher.directory / "end").touch()
    assert shown.job.wait() == 0
