"""docs/mpijob.md is what tests say, and what tests do not say fails."""

from __future__ import annotations

from pathlib import Path

import pytest

import mpijob_page

ROWS = """
head: "# Head"
sections:
- title: First
  rows:
  - {key: a, what: A}
  - {key: b, what: B, corro: otherwise}
  - {key: c, what: C, uncovered: not here}
"""
CPP = "// mpijob same: a\n// mpijob different: b\nTEST_F(Suite, Name) {\n}\n"


def tree(folder: Path, cpp: str = CPP, python: str = "", rows: str = ROWS) -> str:
    """The page of a project with these tests."""
    for path, text in (
        ("cpp/src/kube/job/x_test.cc", cpp),
        ("tests/kube/test_x.py", python),
        ("rows.yaml", rows),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return mpijob_page.page(folder, folder / "rows.yaml")


def test_the_page_is_what_the_script_writes() -> None:
    assert mpijob_page.PAGE.read_text() == mpijob_page.page(), "run tools/mpijob_page.py"


def test_verdicts_come_from_comments_in_both_languages(tmp_path: Path) -> None:
    python = "# mpijob same: a\n@mark(1)\ndef test_y() -> None:\n    pass\n"
    lines = tree(tmp_path, python=python).splitlines()
    assert "| A | *same* | `Suite.Name`, `test_x.py::test_y` |" in lines
    assert "| B | *different*: otherwise | `Suite.Name` |" in lines
    assert "| C | *not covered*: not here |  |" in lines
    assert "3 rows: 1 same, 1 different, 1 not covered." in lines


@pytest.mark.parametrize(
    ("cpp", "complaint"),
    [
        ("", "a: has no test"),
        (CPP.replace("same: a", "same: a; d"), "no row is called d"),
        (CPP.replace("same: a", "same: a; c"), "c: is uncovered and has a test"),
        (CPP.replace("different: b", "same: b"), "b: differs in its text alone"),
        (CPP.replace("same: a", "different: a"), "a: differs in a test alone"),
        (CPP.replace("same: a", "equal: a"), "same or different"),
        (CPP + "// mpijob same: a\n", "no test follows"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, cpp: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        tree(tmp_path, cpp)
