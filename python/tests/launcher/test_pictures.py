"""The pictures of docs/dashboard.md, of the page as it is: `make docs` has them made here.

PICTURES is the folder that gets them; without it they are made, looked at, and forgotten.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import test_dashboard as dashboards
from .conftest import Launcher, wait_until

pytestmark = dashboards.pytestmark
browser = dashboards.browser  # The fixture.

PAGE = Path(__file__).parents[3] / "docs/dashboard.md"
MOST_BYTES = 150 << 10  # Of both pictures.
SIZE = {"width": 860, "height": 560}


def test_the_page_of_the_document_has_pictures(
    launcher: Launcher, browser: Any, tmp_path: Path
) -> None:
    folder = Path(os.environ.get("PICTURES", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    rest = launcher.directory / "rest"
    launcher.script(dashboards.STEPS, "train.py")
    shown = dashboards.start(launcher, Path("train.py"), "--long-wait", "1", ranks=4)
    wait_until(lambda: (shown.facts()["ranks"][0]["step"] or 0) > 100, "some steps")
    rest.touch()
    pictures = [folder / f"dashboard-{scheme}.png" for scheme in ("light", "dark")]
    for scheme, picture in zip(("light", "dark"), pictures, strict=True):
        context = browser.new_context(viewport=SIZE, color_scheme=scheme)
        window = dashboards.watched(context)
        window.page.goto(shown.url)
        window.says("#summary", "ranks 0,2-3 wait for rank 1")
        window.page.screenshot(path=picture)
        assert window.troubles == []
        context.close()
    rest.unlink()
    (launcher.directory / "end").touch()
    assert shown.job.wait() == 0
    light, dark = (picture.read_bytes() for picture in pictures)
    assert light != dark
    assert len(light) + len(dark) <= MOST_BYTES
    for picture in pictures:
        assert f"pictures/{picture.name}" in PAGE.read_text()
