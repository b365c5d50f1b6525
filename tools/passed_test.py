"""What is remembered of a suite, and that each kind of input, when it changes, runs it again."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import passed
from passed import (
    Digests,
    Memory,
    Suite,
    Watch,
    facts,
    file_clock_ns,
    wait_for_tick,
    watched_folders,
)

# What a suite of the tests does: it reads a document, imports a module, lists a folder, looks at a
# folder that is not there yet, and a process of its own reads a text.
PROGRAM = """
import os, subprocess, sys
sys.path.insert(0, "code")
import helper
open("docs/page.md").read()
os.listdir("data")
subprocess.run(["cat", "data/text"], check=True)
"""


PAST_NS = 1_700_000_000_000_000_000


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for folder in ("docs", "data", "code", "apart"):
        (root / folder).mkdir(parents=True)
    (root / "docs/page.md").write_text("page")
    (root / "data/text").write_text("text")
    (root / "apart/other").write_text("other")
    (root / "code/helper.py").write_text("VALUE = 1\n")
    (root / "program.py").write_text(PROGRAM)
    for path in (each for each in root.rglob("*") if each.is_file()):
        written_at(path, PAST_NS)
    return root


def written_at(path: Path, time_ns: int) -> None:
    os.utime(path, ns=(time_ns, time_ns))


def suite_of(root: Path, **changed: object) -> Suite:
    known = {"name": "suite", "command": (sys.executable, str(root / "program.py")), "folder": root}
    return Suite(**(known | changed))  # type: ignore[arg-type]


def memory_of(root: Path, around: str = "facts", full: bool = False) -> Memory:
    """With digests of its own, as of a later run."""
    return Memory(root.parent / "passed", around, Digests(root), full)


def run_program(root: Path, suite: Suite) -> None:
    """With Python's caches, whatever the caller is told."""
    env = {name: value for name, value in os.environ.items() if "BYTECODE" not in name}
    subprocess.run(suite.command, cwd=root, env=env, check=True, capture_output=True)


def run_once(root: Path, suite: Suite) -> set[str]:
    """Runs the suite and remembers it; returns what it has opened."""
    watch = Watch(root, watched_folders(root))
    opened = watch.start()
    started = file_clock_ns()
    run_program(root, suite)
    read = watch.stop(opened)
    watch.close()
    assert read is not None
    memory_of(root).add(suite, read, started, {"passed": "3"})
    return read


def test_what_was_opened_is_found(tree: Path) -> None:
    read = run_once(tree, suite_of(tree))
    assert {"docs/page.md", "data/text", "code/helper.py", "program.py", "data/", "code/"} <= read
    assert "apart/other" not in read
    # Now Python has the module's cache, and opens that in its place.
    assert "code/helper.py" in run_once(tree, suite_of(tree))


def test_a_suite_whose_inputs_are_the_same_has_passed(tree: Path) -> None:
    assert memory_of(tree).find(suite_of(tree)) is None
    run_once(tree, suite_of(tree))
    assert memory_of(tree).find(suite_of(tree)) == {"passed": "3"}
    (tree / "apart/other").write_text("changed")
    (tree / "apart/new").write_text("new")
    assert memory_of(tree).find(suite_of(tree)) == {"passed": "3"}


CHANGES: dict[str, Callable[[Path], object]] = {
    "a document": lambda root: (root / "docs/page.md").write_text("Page"),
    "a module": lambda root: (root / "code/helper.py").write_text("VALUE = 2\n"),
    "what another process reads": lambda root: (root / "data/text").write_text("Text"),
    "a new file in a listed folder": lambda root: (root / "data/new").write_text(""),
    "a new module that may be found first": lambda root: (root / "code/sys.py").write_text(""),
    "a file that is gone": lambda root: (root / "data/text").unlink(),
    "the program": lambda root: (root / "program.py").write_text(PROGRAM + "\n"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_any_input_that_changes_runs_it_again(tree: Path, what: str) -> None:
    run_once(tree, suite_of(tree))
    CHANGES[what](tree)
    assert memory_of(tree).find(suite_of(tree)) is None


def test_what_a_suite_declares_counts_though_nobody_opens_it(tree: Path) -> None:
    suite = suite_of(tree, reads=("apart",))
    run_once(tree, suite)
    assert memory_of(tree).find(suite) is not None
    (tree / "apart/new").write_text("new")
    assert memory_of(tree).find(suite) is None
    (tree / "apart/new").unlink()
    (tree / "apart/other").write_text("changed")
    assert memory_of(tree).find(suite) is None


def test_command_variables_and_facts_are_inputs(tree: Path) -> None:
    run_once(tree, suite_of(tree))
    assert memory_of(tree).find(suite_of(tree, name="other")) is None
    assert memory_of(tree).find(suite_of(tree, command=(sys.executable, "-X", "dev"))) is None
    assert memory_of(tree).find(suite_of(tree, environment={"CORRO_COMMIT": "1"})) is None
    assert memory_of(tree, around="another kernel").find(suite_of(tree)) is None
    assert memory_of(tree).find(suite_of(tree, environment={"PATH": "/bin"})) is not None


def test_facts_tell_variables_apart() -> None:
    plain = facts({})
    assert facts({"HOME": "/a", "CORRO_PASSED": "/b"}) == plain
    assert facts({"CORRO_TRANSPORT": "tcp"}) != plain
    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "TMPDIR", "LC_ALL"):
        assert facts({name: "1"}) != plain


def test_facts_tell_machines_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What decides whether tests are skipped."""
    plain = facts({})
    for path in ("/proc/self/status", "/proc/net/if_inet6", *passed.SETTINGS):
        with monkeypatch.context() as changed:
            text = "CapEff:\t0000\n" if path.endswith("status") else "0" * 31 + "1 other"
            if path.endswith("if_inet6") and "0" * 31 + "1" in passed.text_of(path):
                text = ""
            real = passed.text_of
            changed.setattr(
                passed, "text_of", lambda at, p=path, t=text, r=real: t if at == p else r(at)
            )
            assert facts({}) != plain, path
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert facts({}) != plain
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert facts({}) == plain


def test_what_python_has_installed_is_an_input_of_its_suites(tree: Path) -> None:
    site = tree / ".venv/lib/python3.11/site-packages"
    (site / "numpy-2.0.dist-info").mkdir(parents=True)
    (site / "corro-0.1.0.dist-info").mkdir()
    suite = suite_of(tree, venv=".venv")
    run_once(tree, suite)
    (site / "corro-0.1.0.dist-info").rename(site / "corro-0.2.0.dist-info")
    assert memory_of(tree).find(suite) is not None
    (site / "numpy-2.0.dist-info").rename(site / "numpy-2.1.dist-info")
    assert memory_of(tree).find(suite) is None


def test_nothing_is_found_if_all_is_to_run(tree: Path) -> None:
    run_once(tree, suite_of(tree))
    assert memory_of(tree, full=True).find(suite_of(tree)) is None


def test_an_input_that_is_written_meanwhile_is_not_remembered(tree: Path) -> None:
    suite = suite_of(tree)
    started = after_all()
    (tree / "docs/page.md").write_text("page")
    memory_of(tree).add(suite, {"docs/page.md", "program.py"}, started, {})
    assert memory_of(tree).find(suite) is None


def test_a_file_that_comes_into_a_listed_folder_meanwhile_is_not_remembered(tree: Path) -> None:
    suite = suite_of(tree)
    started = after_all()
    (tree / "data/new").write_text("")
    memory_of(tree).add(suite, {"data/", "program.py"}, started, {})
    assert memory_of(tree).find(suite) is None


def test_what_is_made_in_a_listed_folder_meanwhile_counts_not(tree: Path) -> None:
    """Caches and results come into folders that a suite lists, and are no names of its listing."""
    memory = memory_of(tree)
    memory.keep_listings(["data/"])
    started = after_all()
    (tree / "data/corro-runs").mkdir()
    memory.add(suite_of(tree), {"data/", "program.py"}, started, {})
    assert memory_of(tree).find(suite_of(tree)) is not None
    (tree / "data/new").write_text("")
    memory.add(suite_of(tree), {"data/", "program.py"}, started, {})
    assert memory_of(tree).find(suite_of(tree)) is None


def test_two_branches_are_remembered_both(tree: Path) -> None:
    run_once(tree, suite_of(tree))
    (tree / "docs/page.md").write_text("of a branch")
    written_at(tree / "docs/page.md", PAST_NS)
    run_once(tree, suite_of(tree))
    assert memory_of(tree).find(suite_of(tree)) is not None
    (tree / "docs/page.md").write_text("page")
    assert memory_of(tree).find(suite_of(tree)) is not None


def test_a_broken_memory_remembers_nothing(tree: Path) -> None:
    run_once(tree, suite_of(tree))
    [file] = (tree.parent / "passed").iterdir()
    file.write_text("{")
    assert memory_of(tree).find(suite_of(tree)) is None
    run_once(tree, suite_of(tree))
    assert memory_of(tree).find(suite_of(tree)) is not None


def test_lost_events_give_the_inputs_up(tree: Path) -> None:
    watch = Watch(tree, watched_folders(tree))
    opened = watch.start()
    watch._note(-1, passed.IN_Q_OVERFLOW, "")
    assert watch.stop(opened) is None
    watch.close()


def test_a_folder_that_cannot_be_watched_gives_the_inputs_up(tree: Path) -> None:
    watch = Watch(tree, [tree / "missing"])
    assert watch.stop(watch.start()) is None
    watch.close()


def test_programs_of_other_tests_that_ran_beside_are_no_inputs(tree: Path) -> None:
    own = program_of(tree, "build/release/cpp/a_test")
    opened = ["build/release/cpp/a_test", "build/release/cpp/b_test", "docs/page.md"]
    assert Suite("a", (str(own),)).inputs_of(opened, tree) == [
        "build/release/cpp/a_test",
        "docs/page.md",
    ]


def program_of(root: Path, path: str) -> Path:
    program = root / path
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("")
    return program


def test_a_checkout_behind_a_link_keeps_its_programs(tree: Path) -> None:
    program_of(tree, "build/release/cpp/a_test")
    (tree.parent / "link").symlink_to(tree)
    suite = Suite("a", (str(tree.parent / "link/build/release/cpp/a_test"),))
    assert suite.inputs_of(["build/release/cpp/a_test"], tree) == ["build/release/cpp/a_test"]


def test_a_suite_that_was_not_seen_is_not_remembered(tree: Path) -> None:
    suite = suite_of(tree)
    memory_of(tree).add(suite, {"docs/page.md"}, after_all(), {})
    assert memory_of(tree).find(suite) is None
    memory_of(tree).add(suite, {"docs/page.md", "program.py"}, after_all(), {})
    assert memory_of(tree).find(suite) is not None


def after_all() -> int:
    """A time after all changes up to now."""
    wait_for_tick()
    return file_clock_ns()


def run_two(root: Path) -> list[Suite]:
    """Two suites under one watch, one after the other: each imports the helper."""
    (root / "second.py").write_text(PROGRAM)
    suites = [suite_of(root), suite_of(root, command=(sys.executable, str(root / "second.py")))]
    watch = Watch(root, watched_folders(root))
    for suite in suites:
        opened = watch.start()
        started = file_clock_ns()
        run_program(root, suite)
        read = watch.stop(opened)
        assert read is not None
        memory_of(root).add(suite, read, started, {})
    watch.close()
    return suites


def test_the_first_suite_after_an_installation_hides_no_module_from_the_next(tree: Path) -> None:
    """The first compiles the module; the second opens what was compiled alone."""
    assert not (tree / "code/__pycache__").exists()
    suites = run_two(tree)
    assert [memory_of(tree).find(suite) for suite in suites] == [{}, {}]
    (tree / "code/helper.py").write_text("VALUE = 2\n")
    assert [memory_of(tree).find(suite) for suite in suites] == [None, None]


def test_a_module_that_is_newer_than_its_cache_is_found(tree: Path) -> None:
    run_once(tree, suite_of(tree))
    (tree / "code/helper.py").write_text("VALUE = 3\n")
    assert "code/helper.py" in run_once(tree, suite_of(tree))


@pytest.mark.parametrize("folder", ["data/new", "code/more/__pycache__"])
def test_a_folder_that_comes_meanwhile_gives_the_inputs_up(tree: Path, folder: str) -> None:
    (tree / folder).parent.mkdir(exist_ok=True)
    watch = Watch(tree, watched_folders(tree))
    opened = watch.start()
    (tree / folder).mkdir()
    assert watch.stop(opened) is None
    assert folder in watch.missed
    watch.close()


@pytest.mark.parametrize("folder", ["corro-runs", "build/asan/cpp/new"])
def test_a_folder_of_what_is_made_gives_nothing_up(tree: Path, folder: str) -> None:
    (tree / folder).parent.mkdir(parents=True, exist_ok=True)
    watch = Watch(tree, watched_folders(tree))
    opened = watch.start()
    (tree / folder).mkdir()
    assert watch.stop(opened) is not None
    watch.close()


def test_digests_are_of_what_is_there(tree: Path) -> None:
    """Also within one run, and though the size and the time of the contents are the same."""
    digests = Digests(tree)
    first = digests.of("docs/page.md")
    (tree / "docs/page.md").write_text("Page")
    written_at(tree / "docs/page.md", PAST_NS)
    assert digests.of("docs/page.md") != first
    listing = digests.of("data/")
    (tree / "data/new").write_text("")
    assert digests.of("data/") != listing


def test_what_was_mended_before_the_suite_began_is_remembered_as_it_was_read(tree: Path) -> None:
    memory = memory_of(tree)
    suite = suite_of(tree)
    run_once(tree, suite)
    assert memory.find(suite) is not None  # It knows the digest of the page.
    (tree / "docs/page.md").write_text("mended")
    memory.add(suite, {"docs/page.md", "program.py"}, after_all(), {"of": "mended"})
    (tree / "docs/page.md").write_text("page")
    assert memory_of(tree).find(suite) == {"passed": "3"}


@pytest.mark.parametrize("change", ["an older file comes in its place", "it goes"])
def test_a_change_without_a_new_time_is_one(tree: Path, change: str) -> None:
    suite = suite_of(tree)
    (tree.parent / "other").write_text("Page")
    written_at(tree.parent / "other", PAST_NS)
    started = after_all()
    if change == "it goes":
        (tree / "docs/page.md").unlink()
    else:
        (tree.parent / "other").rename(tree / "docs/page.md")
    memory_of(tree).add(suite, {"docs/page.md", "program.py"}, started, {})
    assert memory_of(tree).find(suite) is None


def inputs_beside_compilers(tree: Path, program: str) -> list[str]:
    """What counts of what a suite with this text and compilers beside it have opened."""
    (tree / "cpp").mkdir()
    (tree / "cpp/x.h").write_text("")
    (tree / "program.py").write_text(program)
    opened = {"program.py", "docs/page.md", "cpp/x.h", "build/asan/cpp/libx.a", "docs/"}
    return suite_of(tree).inputs_of(opened, tree) or []


OF_ALL = ["docs/", "docs/page.md", "program.py"]


@pytest.mark.parametrize(
    ("program", "inputs"),
    [
        ("print('incpp', 'tasan')", OF_ALL),
        ("print(ROOT / 'cpp')", ["cpp/x.h", *OF_ALL]),
        ("print('build/asan')", ["build/asan/cpp/libx.a", *OF_ALL]),
    ],
)
def test_what_compilers_open_beside_counts_if_it_is_named(
    tree: Path, program: str, inputs: list[str]
) -> None:
    assert inputs_beside_compilers(tree, program) == inputs


def test_a_text_that_a_suite_reads_may_name_what_it_reads(tree: Path) -> None:
    (tree / "docs/page.md").write_text("see `cpp/x.h`")
    assert "cpp/x.h" in inputs_beside_compilers(tree, "")


def test_what_was_listed_was_found_without_a_name(tree: Path) -> None:
    suite = suite_of(tree)
    assert suite.inputs_of({"program.py", "cpp/x.h", "cpp/"}, tree) == [
        "cpp/",
        "cpp/x.h",
        "program.py",
    ]
