"""How the closing line of `make test` is counted from the reports of gtest and pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from passed import Suite
from run_tests import ALL_FAULTS, Totals, count_cases, judge, totals_of
from suites import Outcome

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


@pytest.mark.parametrize(
    ("report", "totals"), [(GTEST, Totals(1, 1, 2)), (PYTEST, Totals(1, 1, 1))]
)
def test_cases_are_counted(tmp_path: Path, report: str, totals: Totals) -> None:
    assert count_cases(write(tmp_path, "report.xml", report)) == totals


def gtest_suite(folder: Path) -> Suite:
    report = folder / "frame_test.xml"
    return Suite("frame", ("frame_test",), environment={"GTEST_OUTPUT": f"xml:{report}"})


def counted(suite: Suite, status: int) -> tuple[int, Totals]:
    judged, note = judge(suite, status, "")
    return judged, totals_of([Outcome(suite, judged, 1.0, note)])


def test_a_program_with_a_report_counts_by_case(tmp_path: Path) -> None:
    write(tmp_path, "frame_test.xml", GTEST)
    assert counted(gtest_suite(tmp_path), 1) == (1, Totals(1, 1, 2))


def test_a_program_without_a_report_is_one_case(tmp_path: Path) -> None:
    assert counted(gtest_suite(tmp_path), 0) == (0, Totals(1))
    assert counted(gtest_suite(tmp_path), 1) == (1, Totals(failed=1))


def test_a_program_that_dies_after_its_cases_is_a_failure(tmp_path: Path) -> None:
    write(tmp_path, "frame_test.xml", '<testsuites><testcase name="a" status="run"/></testsuites>')
    assert counted(gtest_suite(tmp_path), -11) == (-11, Totals(1, 1))


def test_other_notes_are_no_counts(tmp_path: Path) -> None:
    note = {"passed": "1", "failed": "0", "skipped": "2", "skips": "SKIPPED x"}
    assert totals_of([Outcome(gtest_suite(tmp_path), 0, 1.0, note)]) == Totals(1, 0, 2)


def test_a_file_without_tests_of_the_selection_is_no_failure(tmp_path: Path) -> None:
    command = ("python", "-m", "pytest", f"--junitxml={tmp_path / 'x.xml'}")
    assert counted(Suite("x", command), 5) == (0, Totals())


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("pytestmark = pytest.mark.faults\n", True),
        (
            "import x\npytestmark = [\n    pytest.mark.timeout(9),\n    pytest.mark.faults,\n]\n",
            True,
        ),
        ("pytestmark = pytest.mark.slow\n\n@pytest.mark.faults\ndef test_x(): ...\n", False),
    ],
)
def test_a_file_of_faults_alone_runs_alone(text: str, alone: bool) -> None:
    assert (ALL_FAULTS.search(text) is not None) == alone


def test_the_closing_line() -> None:
    assert str(Totals(12, 0, 3) + Totals(1)) == "13 passed, 0 failed, 3 skipped"
