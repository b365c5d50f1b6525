"""The tests that docs/faults.md names are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = (ROOT / "docs/faults.md").read_text()
FAULTS = 78


def python_tests() -> set[str]:
    return {
        f"{path.name}::{name}"
        for path in (ROOT / "python/tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }


def cpp_tests() -> set[str]:
    return {
        f"{suite}.{name}"
        for path in (ROOT / "cpp/src").rglob("*_test.cc")
        for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", path.read_text(), re.M)
    }


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`(test_\w+\.py::test_\w+|[A-Z]\w+\.[A-Z]\w+)`", TABLE))
    assert len(named) > 40
    assert not named - python_tests() - cpp_tests()


def test_every_fault_has_a_line() -> None:
    covered: set[int] = set()
    for row in re.findall(r"^\| ([\d, -]+) \|", TABLE, re.MULTILINE):
        for part in row.split(","):
            first, _, last = part.strip().partition("-")
            covered |= set(range(int(first), int(last or first) + 1))
    assert set(range(1, FAULTS + 1)) <= covered
