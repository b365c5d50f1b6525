"""How suites are run: which side by side, what is shown, what is left out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from passed import Digests, Memory, Suite, Watch, watched_folders
from suites import BUSY, TOOK, Judge, Outcome, Runner, judge_by_status, judge_step, run_program

# Says who runs at the same time: each leaves a file while it is there.
TOGETHER = """
import os, sys
folder, name, wanted = sys.argv[1:]
open(os.path.join(folder, name), "w").close()
while not os.path.exists(os.path.join(folder, wanted)):
    pass
"""
ALONE = """
import os, sys
folder, name = sys.argv[1:]
path = os.path.join(folder, "running")
os.close(os.open(path, os.O_CREAT | os.O_EXCL))
os.unlink(path)
"""


def suite_of(name: str, program: str, *words: str, **more: object) -> Suite:
    command = (sys.executable, "-c", program, *words)
    return Suite(name, command, timeout=60, **more)  # type: ignore[arg-type]


def run(
    tmp_path: Path, *suites: Suite, processors: int = 2, judge: Judge = judge_by_status
) -> list[Outcome]:
    tree = tmp_path / "tree"
    tree.mkdir(exist_ok=True)
    watch = Watch(tree, watched_folders(tree))
    memory = Memory(tmp_path / "passed", "facts", Digests(tree))
    try:
        return Runner(memory, watch, judge).run(suites, processors)
    finally:
        watch.close()


def test_two_of_a_kind_run_side_by_side(tmp_path: Path) -> None:
    pair = [
        suite_of("a", TOGETHER, str(tmp_path), "a", "b"),
        suite_of("b", TOGETHER, str(tmp_path), "b", "a"),
    ]
    assert [outcome.status for outcome in run(tmp_path, *pair)] == [0, 0]


def test_others_run_one_by_one(tmp_path: Path) -> None:
    suites = [suite_of(f"alone {i}", ALONE, str(tmp_path), "x", alone=True) for i in range(3)]
    suites += [suite_of(f"kind {i}", ALONE, str(tmp_path), "x", kind=str(i)) for i in range(3)]
    suites += [suite_of(f"busy {i}", ALONE, str(tmp_path), "x", busy=2) for i in range(3)]
    assert [outcome.status for outcome in run(tmp_path, *suites)] == [0] * 9


def test_the_longest_of_what_passed_before_comes_first(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    read = f"open({str(tree / 'input')!r})"
    suites = [suite_of(name, read) for name in ("short", "long", "longest")]

    def judge(suite: Suite, status: int, output: str) -> tuple[int, dict[str, str]]:
        del output
        return status, {TOOK: {"short": "1", "long": "9", "longest": "10"}[suite.name]}

    for text, first in (("1", "short"), ("2", "longest")):
        (tree / "input").write_text(text)
        outcomes = run(tmp_path, *suites, processors=1, judge=judge)
        assert [outcome.before for outcome in outcomes] == [False] * 3
        assert outcomes[0].suite.name == first
    new = suite_of("new", read)
    (tree / "input").write_text("3")
    outcomes = run(tmp_path, *suites, new, processors=1, judge=judge_by_status)
    names = [outcome.suite.name for outcome in outcomes]
    assert names == ["new", "longest", "long", "short"]


def test_what_passed_is_a_line_the_next_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = suite_of("quiet", "print('words')")
    [first], [second] = run(tmp_path, suite), run(tmp_path, suite)
    assert (first.before, second.before) == (False, True)
    out = capsys.readouterr().out
    assert "not run: quiet: passed before with the same inputs\n" in out
    assert "words" not in out


def test_a_failure_shows_what_was_printed_and_is_not_remembered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = suite_of("loud", "print('words'); raise SystemExit(3)")
    for _ in range(2):
        assert [outcome.status for outcome in run(tmp_path, suite)] == [3]
    assert capsys.readouterr().out.count("words") == 2


GTEST = """\
[ RUN      ] Mesh.NeedsIpv6
mesh_test.cc:34: Skipped
no IPv6 here
[  SKIPPED ] Mesh.NeedsIpv6 (0 ms)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Mesh.NeedsIpv6
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("SKIPPED [1] x.py:1: no GPU\n", "SKIPPED [1] x.py:1: no GPU\n"),
        (GTEST, "SKIPPED Mesh.NeedsIpv6: no IPv6 here\n"),
    ],
)
def test_reasons_of_skipped_tests_are_shown_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str, line: str
) -> None:
    for before in (False, True):
        [outcome] = run(tmp_path, suite_of("some", f"print({output!r})"))
        assert outcome.before == before
        assert capsys.readouterr().out.count(line) == 1


def test_the_memory_is_no_reader_beside_the_suites(tmp_path: Path) -> None:
    """It compares and digests the inputs of one suite while no other is watched."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/page").write_text("page")
    suites = [
        suite_of("of the page", "pass", reads=("page",)),  # It is said to read it, and does not.
        suite_of("of nothing", "import time; time.sleep(0.3)"),
    ]
    for text in ("page", "another"):
        (tmp_path / "tree/page").write_text(text)
        outcomes = run(tmp_path, *suites)
    assert {each.suite.name: each.before for each in outcomes} == {
        "of nothing": True,
        "of the page": False,
    }


def test_that_nothing_is_remembered_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    makes = suite_of("makes", "import os, sys; os.mkdir(sys.argv[1])", str(tmp_path / "tree/new"))
    run(tmp_path, makes)
    assert "not remembered: " in capsys.readouterr().out


def test_a_suite_that_takes_too_long_is_ended() -> None:
    program = "import subprocess; subprocess.run(['cat'], stdin=subprocess.PIPE)"
    ended = run_program(
        Suite("endless", (sys.executable, "-c", f"while True: {program!r}"), timeout=0.5)
    )
    assert ended.status == 124
    assert "ended after" in ended.output


# The first time it sleeps, the second time it waits for all the others.
WAITS = """
import os, sys, time
folder, text, name, *all_names = sys.argv[1:]
if open(text).read() == "first":
    time.sleep(1)
else:
    open(os.path.join(folder, name), "w").close()
    while not all(os.path.exists(os.path.join(folder, each)) for each in all_names):
        time.sleep(0.01)
"""
COMPUTES = """
import subprocess, sys
for _ in range(2):
    subprocess.run([sys.executable, "-c", "while __import__('time').process_time() < 0.4: pass"])
"""


def test_those_that_are_known_to_wait_run_beside_one_another(tmp_path: Path) -> None:
    text = tmp_path / "tree/text"
    text.parent.mkdir()
    names = ("a", "b", "c", "d")
    suites = [suite_of(name, WAITS, str(tmp_path), str(text), name, *names) for name in names]
    for round_ in ("first", "second"):
        text.write_text(round_)
        outcomes = run(tmp_path, *suites)
        assert [(each.status, each.before) for each in outcomes] == [(0, False)] * 4


def test_the_time_of_a_suites_processes_counts(tmp_path: Path) -> None:
    [outcome] = run(tmp_path, suite_of("computes", COMPUTES))
    rounding = 0.005
    assert (float(outcome.note[BUSY]) + rounding) * outcome.seconds >= 0.8


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("demo: accuracy=0.912 images/s=9000 seconds=80.1", 0),
        ("demo: accuracy=0.891 images/s=9000 seconds=80.1", 1),
        ("demo: accuracy=0.912 images/s=9000 seconds=250.0", 1),
        ("", 1),
    ],
)
def test_the_demo_has_to_have_learned_in_time(line: str, status: int) -> None:
    assert judge_step(Suite("make demo", ()), 0, line)[0] == status
    assert judge_step(Suite("make docs", ()), 0, line)[0] == 0
