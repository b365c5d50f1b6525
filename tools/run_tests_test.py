"""How the closing line of `make test` is counted from the reports of gtest, ctest and pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_tests import Totals, count_cases, count_programs

GTEST = """\
<testsuites><testsuite name="Frame">
  <testcase name="RoundTrips" status="run" result="completed"/>
  <testcase name="RefusesLength" status="run" result="completed"><failure message="x"/></testcase>
  <testcase name="NeedsGpu" status="run" result="skipped"><skipped message="no GPU"/></testcase>
  <testcase name="DISABLED_Later" status="notrun" result="suppressed"/>
</testsuite></testsuites>
"""
PYTEST = """\
<testsuites><testsuite>
  <testcase name="a"/><testcase name="b"><error message="fixture"/></testcase>
  <testcase name="c"><skipped type="pytest.skip"/></testcase>
</testsuite></testsuites>
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def ctest(folder: Path, *cases: tuple[str, str]) -> Path:
    inner = "".join(f'<testcase name="{name}">{body}</testcase>' for name, body in cases)
    return write(folder, "ctest.junit", f"<testsuite>{inner}</testsuite>")


@pytest.mark.parametrize(
    ("report", "totals"), [(GTEST, Totals(1, 1, 2)), (PYTEST, Totals(1, 1, 1))]
)
def test_cases_are_counted(tmp_path: Path, report: str, totals: Totals) -> None:
    assert count_cases(write(tmp_path, "report.xml", report)) == totals


def test_a_program_with_a_report_counts_by_case(tmp_path: Path) -> None:
    write(tmp_path, "frame_test.xml", GTEST)
    summary = ctest(tmp_path, ("frame_test", "<failure/>"), ("script", ""))
    assert count_programs(summary, tmp_path) == Totals(2, 1, 2)


def test_a_program_that_dies_without_a_report_is_a_failure(tmp_path: Path) -> None:
    assert count_programs(ctest(tmp_path, ("frame_test", "<failure/>")), tmp_path) == Totals(
        failed=1
    )


def test_a_program_that_dies_after_its_cases_is_a_failure(tmp_path: Path) -> None:
    write(tmp_path, "t.xml", '<testsuites><testcase name="a" status="run"/></testsuites>')
    assert count_programs(ctest(tmp_path, ("t", "<failure/>")), tmp_path) == Totals(1, 1)


def test_the_closing_line() -> None:
    assert str(Totals(12, 0, 3) + Totals(1)) == "13 passed, 0 failed, 3 skipped"
