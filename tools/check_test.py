"""Which files of Python tests `make check` runs for a change."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import changed
from check import files_of, steps, suites_of

PACKAGE = ["python/tests/test_package.py", "python/tests/test_stubs.py"]
FILES = [
    *(f"python/tests/test_{name}.py" for name in ("ranks", "horovod", "planner", "package")),
    *("python/tests/test_stubs.py", "python/tests/test_plan_command.py", "tools/image_test.py"),
]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("python/tests/test_planner.py", ["python/tests/test_planner.py"]),
        ("python/tests/ranks/test_join.py", ["python/tests/test_ranks.py"]),
        ("python/corro/planner.py", ["python/tests/test_planner.py"]),
        ("python/corro/numpy.py", [*PACKAGE, "python/tests/test_ranks.py"]),
        (
            "python/corro/torch/optimizer.py",
            [*PACKAGE, "python/tests/test_ranks.py", "python/tests/test_horovod.py"],
        ),
        ("cpp/src/plan/solve/stage.cc", ["python/tests/test_plan_command.py"]),
        ("tools/image.py", ["tools/image_test.py"]),
        ("tools/image_test.py", ["tools/image_test.py"]),
        ("docs/plan.md", []),
        ("python/tests/test_gone.py", []),
    ],
)
def test_a_changed_path_asks_for_its_tests(path: str, wanted: list[str]) -> None:
    assert files_of([path], FILES) == sorted(wanted)


def test_each_file_runs_once() -> None:
    paths = ["python/tests/ranks/a.py", "python/tests/ranks/b.py"]
    assert files_of(paths, FILES) == ["python/tests/test_ranks.py"]


@pytest.mark.parametrize(
    ("suite", "runs"),
    [
        (".venv/python/tests/test_ranks.py", True),
        (".venv/python/tests/test_ranks.py::test_all_with_two_ranks", True),
        (".venv/python/tests/test_ranks.py::test_all_with_four_ranks", False),
        (".venv/python/tests/test_ranks.py::test_all_with_one_rank", False),
        (".venv/python/tests/test_package.py", False),
        (".venv-torch22/python/tests/test_ranks.py", False),
        ("release/test_ranks.py", False),
    ],
)
def test_the_long_ones_run_with_two_ranks(suite: str, runs: bool) -> None:
    assert bool(re.search(suites_of(["python/tests/test_ranks.py"]), suite)) == runs


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("cpp/src/base/x.h", ["clang-tidy", "C++ tests"]),
        ("cpp/src/base/gone.h", ["C++ tests"]),
        ("cpp/src/base/CMakeLists.txt", ["C++ tests"]),
        ("cpp/src/plan/cost/measured/a100.json", ["C++ tests"]),
        ("cmake/CorroTargets.cmake", ["C++ tests"]),
        ("CMakePresets.json", ["C++ tests"]),
        ("docs/cpp/page.md", []),
    ],
)
def test_all_that_programs_are_made_of_runs_their_tests(path: str, names: list[str]) -> None:
    found = [name for name, _ in steps([path], ["cpp/src/base/x.h", path.replace("gone", "x")])]
    assert (
        list(dict.fromkeys(name for name in found if name in ("clang-tidy", "C++ tests"))) == names
    )


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@x")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One file is as it was, one is gone, one was moved, and one is new."""
    git(tmp_path, "init", "-q")
    for name in ("kept.h", "gone.h", "moved.h"):
        (tmp_path / name).write_text(f"the text of {name}\n" * 9)
    (tmp_path / ".gitignore").write_text("built.h\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "all")
    (tmp_path / "gone.h").unlink()
    git(tmp_path, "mv", "moved.h", "there.h")
    for name in ("new.h", "built.h"):
        (tmp_path / name).write_text("")
    return tmp_path


def test_what_is_gone_or_moved_has_changed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed, "ROOT", repository)
    assert changed.changed_since("HEAD") == ["gone.h", "moved.h", "new.h", "there.h"]


def test_new_files_are_formatted_too(repository: Path) -> None:
    script = changed.ROOT / "tools/sources.sh"
    command = ["bash", "-c", f". '{script}'; sources '*.h'"]
    found = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    assert sorted(found.stdout.split("\0")[:-1]) == ["kept.h", "new.h", "there.h"]
