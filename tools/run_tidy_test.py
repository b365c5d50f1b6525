"""Which files clang-tidy reads again after a change, and for a named file."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_tidy import reached, sources_of

FILES = {
    "cpp/src/api/api.cc": '#include <corro/corro.h>\n#include <string>\n#include "api/calls.h"\n',
    "cpp/src/api/calls.h": '#  include "base/types.h"\n',
    "cpp/src/base/types.h": "",
    "cpp/src/base/clock.cc": '#include "clock.h"\n',
    "cpp/src/base/clock.h": "",
    "cpp/src/base/unused.h": "",
    "cpp/include/corro/corro.h": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_every_header_of_the_project_counts_however_it_is_included(tree: Path) -> None:
    found = reached(tree / "cpp/src/api/api.cc", tree)
    assert {str(path.relative_to(tree)) for path in found} == {
        "cpp/src/api/api.cc",
        "cpp/src/api/calls.h",
        "cpp/src/base/types.h",
        "cpp/include/corro/corro.h",
    }
    assert tree / "cpp/src/base/clock.h" in reached(tree / "cpp/src/base/clock.cc", tree)


@pytest.mark.parametrize(
    ("named", "read"),
    [
        ("cpp/src/base/clock.cc", ["cpp/src/base/clock.cc"]),
        ("cpp/src/base/clock.h", ["cpp/src/base/clock.cc"]),
        ("cpp/src/base/types.h", ["cpp/src/api/api.cc"]),
        ("cpp/include/corro/corro.h", ["cpp/src/api/api.cc"]),
        ("cpp/src/base/unused.h", []),
        ("cpp/src/base/clock_test.cc", []),
    ],
)
def test_a_named_file_is_read_itself_or_by_who_includes_it(
    tree: Path, named: str, read: list[str]
) -> None:
    sources = [tree / name for name in FILES if name.endswith(".cc")]
    assert sources_of([tree / named], sources, tree) == {tree / name for name in read}
