"""Runs the tests of one build and closes with one line: N passed, N failed, N skipped.

    tools/run_tests.py                             ctest, pytest, pytest with the oldest torch
    tools/run_tests.py --preset tsan --cpp-only    the C++ tests of a sanitizer build
    tools/run_tests.py --select faults

ctest runs whole gtest programs; their cases are counted from the XML that each writes. A program
or a pytest run that dies without a report counts as one failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent

# What each selection means to ctest and to pytest.
SELECTIONS = {
    "core": (["--label-exclude", "slow"], "not slow"),
    "all": ([], ""),
    "faults": (["--label-regex", "faults"], "faults"),
}


@dataclass(frozen=True)
class Totals:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def count_cases(report: Path) -> Totals:
    """Counts the test cases of one JUnit XML file (gtest's, pytest's or ctest's)."""
    totals = Totals()
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            totals += Totals(failed=1)
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            totals += Totals(skipped=1)
        else:
            totals += Totals(passed=1)
    return totals


def count_programs(report: Path, case_reports: Path) -> Totals:
    """Counts a ctest run: by case where the program left a report, else the program as one case."""
    totals = Totals()
    for program in ElementTree.parse(report).iter("testcase"):
        cases = case_reports / f"{program.get('name')}.xml"
        failed = program.find("failure") is not None
        counted = count_cases(cases) if cases.exists() else Totals()
        if counted == Totals():
            skipped = program.find("skipped") is not None
            counted = Totals(failed=1) if failed else Totals(skipped=1) if skipped else Totals(1)
        elif failed and not counted.failed:
            # It died after its last case, or ran out of time.
            counted += Totals(failed=1)
        totals += counted
    return totals


def run_ctest(build: Path, selection: Sequence[str]) -> Totals:
    reports = build / "test-reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    summary = reports / "ctest.junit"
    command = ["ctest", "--test-dir", str(build), "--output-on-failure", "--no-tests=ignore"]
    command += ["--parallel", str(os.cpu_count() or 2), "--output-junit", str(summary), *selection]
    environment = os.environ | {"GTEST_OUTPUT": f"xml:{reports}/"}
    status = subprocess.run(command, env=environment, check=False).returncode
    totals = count_programs(summary, reports) if summary.exists() else Totals()
    return totals if status == 0 or totals.failed else totals + Totals(failed=1)


def run_pytest(venv: Path, report: Path, markers: str, arguments: Sequence[str]) -> Totals:
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    command = [str(venv / "bin/python"), "-m", "pytest", "-q", "-m", markers, *arguments]
    command += ["-p", "no:cacheprovider", "-rs", f"--junitxml={report}"]
    # The venv's own programs come first, as for a user who activated it.
    environment = os.environ | {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    totals = count_cases(report) if report.exists() else Totals()
    no_tests_collected = 5
    if status in (0, no_tests_collected) or totals.failed:
        return totals
    return totals + Totals(failed=1)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="release", help="the build folder under build/")
    parser.add_argument("--select", choices=SELECTIONS, default="core")
    parser.add_argument("--cpp-only", action="store_true", help="leave pytest out")
    options = parser.parse_args(argv)

    build = ROOT / "build" / options.preset
    labels, markers = SELECTIONS[options.select]
    print(f"== C++ tests ({options.preset})", flush=True)
    totals = run_ctest(build, labels)
    if not options.cpp_only:
        reports = build / "pytest-reports"
        print("== Python tests, newest torch", flush=True)
        totals += run_pytest(ROOT / ".venv", reports / "newest.xml", markers, [])
        print("== Python tests, oldest torch", flush=True)
        oldest = f"torch22 and ({markers})" if markers else "torch22"
        totals += run_pytest(
            ROOT / ".venv-torch22", reports / "oldest.xml", oldest, ["python/tests"]
        )
    print(totals, flush=True)
    return 0 if totals.passed and not totals.failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
