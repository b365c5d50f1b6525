"""Writes docs/mpijob.md: what of the MPI Operator's MPIJob corro keeps, and the tests that show it.

    tools/mpijob_page.py            writes the page
    tools/mpijob_page.py --check    fails if the page is not what would be written

mpijob_rows.yaml has the rows: what MPIJobs have and do under the MPI Operator, and, where corro
differs, what corro does and why. Which tests show a row, the tests say: by a comment above them, in
C++ and in Python alike, with the names of rows.

    // mpijob same: hostfile; case.config-map
    # mpijob different: scale-down

A row is the same if tests say so and none says that it is different. It is an error if a row has no
test and does not say why (`uncovered`), if tests and row disagree about a difference, if a comment
names no row, or if no test follows it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
ROWS = Path(__file__).resolve().parent / "mpijob_rows.yaml"
PAGE = ROOT / "docs" / "mpijob.md"
TESTS = (
    "cpp/src/kube/*/*_test.cc",
    "cpp/src/pod/*_test.cc",
    "tests/kube/test_*.py",
    "python/tests/test_pods.py",
)
MARK_OR_TEST = re.compile(
    r"^ *(?://|#) mpijob (?P<verdict>\w+): (?P<keys>.+)$"
    r"|^TEST(?:_[FP])?\((?P<suite>\w+),\s*(?P<name>\w+)\)"
    r"|^def (?P<function>test_\w+)",
    re.MULTILINE,
)


@dataclass
class Row:
    key: str
    what: str
    corro: str = ""  # What corro does instead, and why.
    uncovered: str = ""  # Why no test shows it.
    same: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)

    def problem(self) -> str:
        """What is wrong with the row and its tests; "" if nothing is."""
        tests = self.same + self.different
        if self.uncovered:
            return "is uncovered and has a test" if tests else ""
        if not tests:
            return "has no test"
        if bool(self.corro) != bool(self.different):
            return "differs in its text alone" if self.corro else "differs in a test alone"
        return ""

    def verdict(self) -> str:
        if self.uncovered:
            return f"*not covered*: {self.uncovered}"
        return f"*different*: {self.corro}" if self.corro else "*same*"


@dataclass
class Section:
    title: str
    rows: list[Row]
    text: str = ""


def read_sections(path: Path) -> tuple[str, list[Section]]:
    """The page's head, and its sections."""
    data = yaml.safe_load(path.read_text())
    sections = [
        Section(each["title"], [Row(**row) for row in each["rows"]], each.get("text", ""))
        for each in data["sections"]
    ]
    return data["head"], sections


def marks(text: str, file: str) -> Iterator[tuple[str, str, str]]:
    """(verdict, row's key, test) for each name in comments. ValueError if no test follows one."""
    pending: list[tuple[str, str]] = []
    for match in MARK_OR_TEST.finditer(text):
        if match["verdict"]:
            if match["verdict"] not in ("same", "different"):
                raise ValueError(f"{file}: mpijob {match['verdict']}: same or different")
            pending += [(match["verdict"], key.strip()) for key in match["keys"].split(";")]
            continue
        test = f"{file}::{match['function']}" if match["function"] else ""
        for verdict, key in pending:
            yield verdict, key, test or f"{match['suite']}.{match['name']}"
        pending.clear()
    if pending:
        raise ValueError(f"{file}: mpijob {pending[0][0]}: {pending[0][1]}: no test follows")


def join(sections: list[Section], root: Path) -> list[str]:
    """Gives each row its tests; returns what does not fit."""
    rows = {row.key: row for section in sections for row in section.rows}
    problems = []
    if len(rows) < sum(len(section.rows) for section in sections):
        problems.append("two rows have one key")
    for pattern in TESTS:
        for path in sorted(root.glob(pattern)):
            for verdict, key, test in marks(path.read_text(), path.name):
                if key in rows:
                    getattr(rows[key], verdict).append(test)
                else:
                    problems.append(f"{test}: no row is called {key}")
    return problems + [f"{row.key}: {row.problem()}" for row in rows.values() if row.problem()]


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def render(head: str, sections: list[Section]) -> str:
    lines = [
        "% Written by tools/mpijob_page.py from mpijob_rows.yaml and from comments in tests.",
        "",
    ]
    lines += [head.strip(), ""]
    rows = [row for section in sections for row in section.rows]
    same = sum(1 for row in rows if not row.corro and not row.uncovered)
    uncovered = sum(1 for row in rows if row.uncovered)
    different = len(rows) - same - uncovered
    lines += [f"{len(rows)} rows: {same} same, {different} different, {uncovered} not covered.", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        if section.text:
            lines += [section.text.strip(), ""]
        lines += ["| under the MPI Operator | under corro | shown by |", "|---|---|---|"]
        for row in section.rows:
            tests = ", ".join(f"`{test}`" for test in row.same + row.different)
            lines.append(f"| {cell(row.what)} | {cell(row.verdict())} | {tests} |")
        lines.append("")
    return "\n".join(lines)


def page(root: Path = ROOT, rows: Path = ROWS) -> str:
    """The page's text. ValueError with all that does not fit."""
    head, sections = read_sections(rows)
    if problems := join(sections, root):
        raise ValueError("\n".join(problems))
    return render(head, sections)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    try:
        text = page()
    except ValueError as error:
        print(f"docs/mpijob.md:\n{error}", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        print(f"{PAGE}: not what tools/mpijob_page.py writes: run it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
