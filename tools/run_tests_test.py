"""How the closing line of `make test` is counted from the reports of gtest and pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import run_tests
from passed import ROOT, Suite
from run_tests import ALL_FAULTS, Totals, apart, count_cases, judge, python_suites, totals_of
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


TESTS = """
import pytest

@pytest.mark.apart
@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.torch22)])
def test_long(size): ...

@pytest.mark.apart
@pytest.mark.slow
def test_longer(): ...

@pytest.mark.torch22
def test_short(): ...

@pytest.mark.parametrize("size", [1, 2])
def test_others(size): ...
"""


@pytest.mark.parametrize("markers", ["", "not slow"])
@pytest.mark.parametrize(
    ("venv", "names"),
    [
        (".venv", ["::test_long", "::test_longer", ""]),
        (".venv-torch22", ["::test_long", ""]),
    ],
)
def test_a_test_that_is_apart_is_a_suite_and_no_case_is_lost_or_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, venv: str, names: list[str], markers: str
) -> None:
    write(tmp_path, "test_x.py", TESTS)
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    if venv != ".venv":
        markers = f"torch22 and ({markers})" if markers else "torch22"
    suites = python_suites(tmp_path / venv, tmp_path, markers, ["."])
    assert [suite.name for suite in suites] == [f"{venv}/test_x.py{name}" for name in names]
    assert len({run_tests.report_of(suite) for suite in suites}) == len(suites)

    def cases(*words: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return [line for line in done.stdout.splitlines() if "::" in line]

    apart_or_not = [each for suite in suites for each in cases(*suite.command[4:7])]
    assert sorted(apart_or_not) == sorted(cases("-m", markers, "test_x.py"))


def test_files_run_beside_those_of_their_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    write(folder, "test_a.py", "pytestmark = pytest.mark.faults\n")
    write(folder, "test_b.py", "pytestmark = [pytest.mark.faults, pytest.mark.beside]\n")
    write(folder, "test_c.py", "def test_x(): ...\n")
    write(folder, "test_planner.py", "def test_x(): ...\n")
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    suites = python_suites(tmp_path / ".venv", tmp_path, "", ["tests"])
    assert [(suite.alone, suite.kind) for suite in suites] == [
        (True, ".venv/faults"),
        (False, ".venv/faults"),
        (False, ".venv/tests"),
        (False, ".venv/planner"),
    ]


def test_what_a_whole_file_is_marked_as_counts_for_its_tests() -> None:
    [long, longer] = apart(TESTS)
    assert (long.of_other_torch, longer.of_other_torch) == (True, False)
    assert all(each.of_other_torch for each in apart("pytestmark = pytest.mark.torch22\n" + TESTS))


def test_the_closing_line() -> None:
    assert str(Totals(12, 0, 3) + Totals(1)) == "13 passed, 0 failed, 3 skipped"


def test_what_a_test_asks_for_without_opening_it_is_declared(tmp_path: Path) -> None:
    suites = python_suites(ROOT / ".venv", tmp_path, "", ["tools", "python/tests"])
    reads = {suite.name.removeprefix(".venv/"): suite.reads for suite in suites}
    assert {"build/wheels", "build/release/pod/corro"} <= set(reads["tools/image_test.py"])
    assert "build/release/pod/corro" in reads["python/tests/test_pods.py"]
    assert run_tests.READS.keys() <= reads.keys()
