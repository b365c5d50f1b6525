"""Plants one broken rule at a time in a small tree, and looks whether the checker names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_floors import check

FLOORS = """\
corro:
base:
io: base  # sockets
wire/loft: base
wire: base io wire/loft
testing: base io wire
tests: testing
python/corro: ~python/corro.plugin
python/corro.plugin: python/corro
python/corro.numpy: python/corro numpy
python/corro.torch: python/corro torch
python/horovod: python/corro
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "cmake/floors.txt": FLOORS,
        "cpp/src/base/status.h": "#pragma once\n#include <string>\n",
        "cpp/src/io/socket.h": '#include <sys/socket.h>\n#include "base/status.h"\n',
        "cpp/src/io/socket_test.cc": '#include "io/socket.h"\n#include "testing/world.h"\n',
        "cpp/src/io/CMakeLists.txt": "corro_library(io SOURCES socket.cc USES base LINKS fmt)\n"
        "corro_test(io_test SOURCES socket_test.cc USES io testing)\n",
        "cpp/src/wire/frame.h": '#include "io/socket.h"\n#include "wire/loft/code.h"\n',
        "cpp/src/wire/loft/code.h": '#include "base/status.h"\n',
        "cpp/src/wire/CMakeLists.txt": "corro_library(wire SOURCES a.cc USES io wire/loft)\n",
        "python/corro/__init__.py": "from . import _engine\nimport json\n"
        "import importlib\nlater = importlib.import_module('corro.plugin')\n",
        "python/corro/plugin.py": "import corro\n",
        "python/corro/torch/__init__.py": "import torch\nfrom .. import _engine\n",
    }
    for name, text in files.items():
        write(tmp_path, name, text)
    return tmp_path


def write(tree: Path, name: str, text: str) -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_clean_tree_has_no_problem(tree: Path) -> None:
    assert check(tree) == []


def test_what_python_leaves_behind_is_no_floor(tree: Path) -> None:
    write(tree, "cpp/src/io/__pycache__/rows.cpython-311.pyc", "")
    assert check(tree) == []


def test_a_folder_of_published_inputs_is_no_floor(tree: Path) -> None:
    write(tree, "cpp/src/io/instances/input.json", "{}")
    assert check(tree) == []


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("cpp/src/io/up.cc", '#include "wire/frame.h"\n', "io may not include wire/"),
        ("cpp/src/io/up.h", '#  include "wire/frame.h"\n', "io may not include wire/"),
        ("cpp/src/io/up.h", "#include <wire/frame.h>\n", "io may not include wire/"),
        ("cpp/src/io/up.h", '#include "../wire/frame.h"\n', "io may not include wire/"),
        ("cpp/src/io/abi.h", "#include <corro/corro.h>\n", "io may not include corro/"),
        ("cpp/src/io/double.cc", '#include "testing/world.h"\n', "io may not include testing/"),
        ("cpp/src/base/up_test.cc", '#include "io/socket.h"\n', "base may not include io/"),
        ("cpp/src/loft/x.h", "", "no line for it"),
        ("cpp/src/wire/cellar/x.h", "", "no line for it"),
        ("cpp/src/io/up.h", '#include "wire/loft/code.h"\n', "io may not include wire/loft/"),
        ("cpp/src/wire/loft/a.cc", '#include "wire/frame.h"\n', "loft may not include wire/"),
        ("cpp/src/wire/loft/a.cc", '#include "../frame.h"\n', "loft may not include wire/"),
        ("cpp/src/wire/loft/a.cc", '#include "../../io/fd.h"\n', "loft may not include io/"),
        ("cpp/src/wire/loft/CMakeLists.txt", "corro_use_floors(x PUBLIC io)\n", "may not link io"),
        ("cpp/src/io/CMakeLists.txt", "corro_test(t USES wire/loft)\n", "may not link wire/loft"),
        ("cpp/src/io/CMakeLists.txt", "f(x corro_wire_loft)\n", "may not link wire/loft"),
        ("cpp/src/base/CMakeLists.txt", "corro_library(base SOURCES a.cc USES io)\n", "link io"),
        ("cpp/src/base/CMakeLists.txt", "target_link_libraries(x corro_wire)\n", "link wire"),
        ("cpp/src/wire/b_test.cc", "", "b_test.cc: no CMakeLists.txt names it"),
        ("cpp/src/wire/loft/b.cc", "", "b.cc: no CMakeLists.txt names it"),
        ("cpp/src/wire/aa.cc", "", "aa.cc: no CMakeLists.txt names it"),
        ("cmake/floors.txt", "base: io\nio:\nwire:\ntesting:\n", "base uses io"),
        ("cmake/floors.txt", "base: base\nio:\nwire:\ntesting:\n", "base uses base"),
        ("python/corro/core.py", "def late():\n    import torch\n", "corro may not import torch"),
        ("python/corro/core.py", "from corro import torch\n", "may not import corro.torch"),
        ("python/corro/torch/a.py", "from ..numpy import x\n", "may not import corro.numpy"),
        ("python/corro/torch/a.py", "import horovod\n", "corro.torch may not import horovod"),
        ("python/horovod/horovod/a.py", "import corro.torch\n", "may not import corro.torch"),
        ("python/corro/numpy.py", "import torch.nn\n", "corro.numpy may not import torch"),
        ("python/corro/core.py", "import corro.plugin\n", "corro may not import corro.plugin"),
        (
            "python/corro/core.py",
            "from importlib import import_module\nimport_module('corro.torch.store')\n",
            "core.py:2: corro may not import corro.torch by name",
        ),
        ("python/corro/core.py", "__import__('torch')\n", "may not import torch by name"),
        ("python/corro/core.py", "x.import_module('.torch', 'corro')\n", "corro.torch by name"),
        ("python/corro/core.py", "at = 'corro.torch.a:create'\n", "import corro.torch by name"),
    ],
)
def test_a_planted_arrow_is_named(tree: Path, name: str, text: str, complaint: str) -> None:
    write(tree, name, text)
    assert any(complaint in problem for problem in check(tree))


def test_this_tree_stands(request: pytest.FixtureRequest) -> None:
    assert check(request.config.rootpath) == []
