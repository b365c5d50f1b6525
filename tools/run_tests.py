"""Runs the tests of one build and closes with one line: N passed, N failed, N skipped.

    tools/run_tests.py                             C++, Python, Python with older torches
    tools/run_tests.py --torch newest              without those
    tools/run_tests.py --preset tsan --cpp-only    the C++ tests of a sanitizer build
    tools/run_tests.py --select faults
    tools/run_tests.py --only 'test_plan|planning_test'

A suite is a whole gtest program, or a file of Python tests; tests of such a file that are marked as
`apart`, since they take long, are suites of their own. Cases are counted from the XML that each
suite writes. One that dies without a report counts as one failure. What passed before with the
same inputs is not run again (passed.py), and counts as it did then.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from xml.etree import ElementTree

from passed import ROOT, Suite
from suites import Outcome, run_suites

# What each selection means to ctest and to pytest.
SELECTIONS = {
    "core": (["--label-exclude", "slow"], "not slow"),
    "all": ([], ""),
    "faults": (["--label-regex", "faults"], "faults"),
}
# The marker of tests that depend on torch's version, and what a torch between the oldest and the
# newest runs of those.
OF_OTHER_TORCH = "torch22"
BETWEEN = ("test_package.py", "test_ranks.py", "test_ranks.py::test_all_with_two_ranks")
# Most tests that are apart are jobs of several ranks. Beside another one those take several times
# as long, since each wait of a rank for another becomes one for a processor.
BUSY_APART = 2
# What a file may find built, and asks for without opening anything where it is not.
ETCD_PROGRAMS = tuple(
    f"build/{preset}/cpp/src/coordinator/coordinator_test" for preset in ("release", "dev")
)
POD_PROGRAMS = ("build/release/pod/corro", "build/dev/pod/corro")
READS = {
    "tools/image_test.py": ("build/wheels", *POD_PROGRAMS),
    "python/tests/test_pods.py": POD_PROGRAMS,
    "python/tests/test_coordinator.py": ETCD_PROGRAMS,
    "python/tests/test_etcd_store.py": ETCD_PROGRAMS,
    "python/tests/test_examples.py": ("build/data/ml-100k/ml-100k.user",),
    "python/tests/test_table_front_ends.py": (
        "python/requirements/tensorflow.txt",
        "python/requirements/jax.txt",
    ),
    "python/tests/test_tensorflow.py": ("python/requirements/tensorflow.txt",),
    "python/tests/test_keras.py": (
        "python/requirements/tensorflow.txt",
        "python/requirements/jax.txt",
    ),
    "python/tests/test_jax.py": ("python/requirements/jax.txt",),
    "python/tests/test_mxnet.py": ("python/requirements/mxnet.txt",),
    "python/tests/test_trainers.py": ("python/requirements/trainers.txt",),
    "python/tests/test_log_writers.py": ("python/requirements/writers.txt",),
    "python/tests/test_otlp.py": ("python/requirements/writers.txt",),
    "python/tests/test_kubeflow.py": ("python/requirements/kfp.txt",),
}
# How ctest may tell whether a test passed; here its exit status alone does.
JUDGED_BY_CTEST = {"WILL_FAIL", "PASS_REGULAR_EXPRESSION", "FAIL_REGULAR_EXPRESSION"}
# A file of which every test kills or starves processes runs alone, or beside others of that kind.
BESIDE = "pytest.mark.beside"
ALL_FAULTS = re.compile(r"^pytestmark = (?:\[[^]]*)?pytest\.mark\.faults", re.MULTILINE)
# Files that open the planner. Whatever ran beside them would run again after each change of it.
OF_PLANNER = ("test_measure", "test_package", "test_plan", "test_record")


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


def cpp_suites(build: Path, selection: str) -> list[Suite]:
    """One suite a program that ctest knows, the longest first."""
    command = ["ctest", "--test-dir", str(build), "--show-only=json-v1", *SELECTIONS[selection][0]]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = []
    for test in json.loads(shown)["tests"]:
        told = {each["name"]: each["value"] for each in test["properties"]}
        name = test["name"]
        if judged := told.keys() & JUDGED_BY_CTEST:
            raise ValueError(f"{name}: only ctest knows {', '.join(judged)}; use the exit status")
        suite = Suite(
            f"{build.name}/{name}",
            # One that was not built has no command.
            tuple(test.get("command", [str(build / name)])),
            environment={"GTEST_OUTPUT": f"xml:{build / 'test-reports' / name}.xml"},
            folder=Path(told["WORKING_DIRECTORY"]),
            timeout=told["TIMEOUT"],
            alone=told.get("RUN_SERIAL", False),
            # One that starts `corro` opens it, and the library: inputs that gtest programs lack.
            kind="C++" if len(test.get("command", [])) == 1 else "C",
        )
        found.append((-told.get("COST", 0), suite))
    return [suite for _, suite in sorted(found, key=lambda each: each[0])]


@dataclass(frozen=True)
class Marked:
    """A test that is a suite of its own, and whether it depends on torch's version."""

    name: str
    of_other_torch: bool


def apart(text: str) -> list[Marked]:
    """The tests of a file that are marked as `apart`."""
    module = ast.parse(text)
    whole = any(
        isinstance(each, ast.Assign)
        and ast.unparse(each.targets[0]) == "pytestmark"
        and OF_OTHER_TORCH in ast.unparse(each.value)
        for each in module.body
    )
    found = []
    for each in module.body:
        marks = list(map(ast.unparse, getattr(each, "decorator_list", [])))
        if isinstance(each, ast.FunctionDef) and "pytest.mark.apart" in marks:
            found.append(Marked(each.name, whole or any(OF_OTHER_TORCH in mark for mark in marks)))
    return found


def python_suites(venv: Path, reports: Path, markers: str, folders: Sequence[str]) -> list[Suite]:
    """One suite a test that is to be apart, then one a file. Files whose tests kill and starve
    processes run alone, unless they are marked as `beside`."""
    long, rest = [], []
    for path in sorted(each for folder in folders for each in (ROOT / folder).glob("*.py")):
        is_test = path.stem.startswith("test_") or path.stem.endswith("_test")
        text = path.read_text()
        is_other = venv.name != ".venv"
        if is_test and (not is_other or OF_OTHER_TORCH in text):
            long += [
                suite_of(venv, reports, markers, path, marked.name)
                for marked in apart(text)
                if not is_other or marked.of_other_torch
            ]
            rest.append(suite_of(venv, reports, markers, path, ""))
    return long + rest


def suite_of(venv: Path, reports: Path, markers: str, path: Path, test: str) -> Suite:
    """One test of a file, or, without a name, all that are not apart."""
    file = str(path.relative_to(ROOT))
    name = f"{file}::{test}" if test else file
    text = path.read_text()
    if not test and apart(text):
        markers = f"({markers}) and not apart" if markers else "not apart"
    report = reports / f"{path.parent.name}-{path.stem}{f'-{test}' if test else ''}.xml"
    command = [str(venv / "bin/python"), "-m", "pytest", "-q", "-m", markers, name]
    command += ["-p", "no:cacheprovider", "-rs", f"--junitxml={report}"]
    # The venv's own programs come first, as for a user who activated it.
    programs = dict.fromkeys([str(venv / "bin"), *os.environ["PATH"].split(":")])
    return Suite(
        f"{venv.name}/{name}",
        tuple(command),
        reads=READS.get(file, ()),
        environment={"PATH": ":".join(programs)},
        venv=venv.name,
        alone=ALL_FAULTS.search(text) is not None and BESIDE not in text,
        kind=f"{venv.name}/{kind_of(path, text)}",
        busy=BUSY_APART if test else 1,
    )


def kind_of(path: Path, text: str) -> str:
    """Which other files a file's suites run beside, and share their inputs with."""
    if ALL_FAULTS.search(text):
        return "faults"
    return "planner" if path.name.startswith(OF_PLANNER) else path.parent.name


def suites_of_newest_torch(reports: Path, markers: str) -> list[Suite]:
    folders = ("python/tests", "python/tests/launcher", "tools")
    return python_suites(ROOT / ".venv", reports / "newest", markers, folders)


def suites_of_older_torch(reports: Path, markers: str) -> list[Suite]:
    """The oldest torch runs what depends on torch's version; one between it and the newest runs
    import, process group, optimizer and verbs."""
    marked = f"{OF_OTHER_TORCH} and ({markers})" if markers else OF_OTHER_TORCH
    oldest = python_suites(ROOT / ".venv-torch22", reports / "oldest", marked, ["python/tests"])
    between = python_suites(ROOT / ".venv-torch28", reports / "between", marked, ["python/tests"])
    return oldest + [suite for suite in between if suite.name.endswith(BETWEEN)]


def report_of(suite: Suite) -> Path:
    xml = [word.split("=", 1)[1] for word in suite.command if word.startswith("--junitxml=")]
    return Path(xml[0] if xml else suite.environment["GTEST_OUTPUT"].removeprefix("xml:"))


def judge(suite: Suite, status: int, output: str) -> tuple[int, dict[str, str]]:
    """Counts what the suite has reported; a death without a report is one failure."""
    del output
    no_tests_collected = 5
    if status == no_tests_collected and "pytest" in suite.command:
        return 0, asdict_of(Totals())
    report = report_of(suite)
    totals = count_cases(report) if report.exists() else Totals()
    if status and not totals.failed:
        totals += Totals(failed=1)
    if not status and totals == Totals():
        totals = Totals(passed=1)  # No gtest program: a case of its own.
    return status, asdict_of(totals)


def asdict_of(totals: Totals) -> dict[str, str]:
    return {name: str(count) for name, count in asdict(totals).items()}


def totals_of(outcomes: Sequence[Outcome]) -> Totals:
    totals = Totals()
    for outcome in outcomes:
        counts = {each.name: int(outcome.note[each.name]) for each in fields(Totals)}
        totals += Totals(**counts)
    return totals


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="release", help="the build folder under build/")
    parser.add_argument("--select", choices=SELECTIONS, default="core")
    parser.add_argument("--cpp-only", action="store_true", help="leave pytest out")
    parser.add_argument(
        "--torch", choices=("all", "newest", "older"), default="all", help="older: those alone"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="suites with such a name")
    options = parser.parse_args(argv)

    build = ROOT / "build" / options.preset
    reports = build / "test-reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    markers = SELECTIONS[options.select][1]
    suites: list[Suite] = []
    if options.torch != "older":
        suites += cpp_suites(build, options.select)
        if not options.cpp_only:
            suites += suites_of_newest_torch(reports, markers)
    if options.torch != "newest" and not options.cpp_only:
        suites += suites_of_older_torch(reports, markers)
    suites = [suite for suite in suites if re.search(options.only, suite.name)]
    outcomes = run_suites(suites, judge)
    before = sum(outcome.before for outcome in outcomes)
    if before:
        print(f"{before} of {len(outcomes)} suites passed before: CI_FULL=1 runs them, too")
    totals = totals_of(outcomes)
    print(totals, flush=True)
    return 0 if outcomes and not totals.failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
