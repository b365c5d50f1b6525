"""Which files of Python tests `make check` runs for a change."""

from __future__ import annotations

import pytest

from check import files_of, pytest_arguments

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
        ("python/corro/numpy.py", ["python/tests/test_package.py", "python/tests/test_stubs.py"]),
        ("cpp/src/plan/solve/stage.cc", ["python/tests/test_plan_command.py"]),
        ("tools/image.py", ["tools/image_test.py"]),
        ("tools/image_test.py", ["tools/image_test.py"]),
        ("docs/plan.md", []),
        ("python/tests/test_gone.py", []),
    ],
)
def test_a_changed_path_asks_for_its_tests(path: str, wanted: list[str]) -> None:
    assert files_of([path], FILES) == wanted


def test_each_file_runs_once() -> None:
    paths = ["python/tests/ranks/a.py", "python/tests/ranks/b.py"]
    assert files_of(paths, FILES) == ["python/tests/test_ranks.py"]


def test_the_long_ones_run_with_two_ranks() -> None:
    assert pytest_arguments("python/tests/test_ranks.py")[-2:] == ["-k", "2 or not test_all"]
    assert "-k" not in pytest_arguments("python/tests/test_package.py")
