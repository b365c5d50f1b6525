"""What one runs before each commit: `make check`. It formats, and checks what has changed.

    tools/check.py [--since REVISION]

Changed is what differs from the common ancestor with the branch's origin: commits, what is not
committed yet, new files, and files that are gone. Formatters are applied. Floors, linters and types
are checked as a whole, clang-tidy reads changed sources, and the tests of what has changed run, but
for those that have passed with their present inputs (passed.py): every C++ program, and the files
of Python tests that the table below names for a path. CI runs the rest.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from changed import ROOT, changed_since, git, origin

PYTHON = str(ROOT / ".venv/bin/python")

PACKAGE = ["python/tests/test_package.py", "python/tests/test_stubs.py"]
RANKS = [*PACKAGE, "python/tests/test_ranks.py"]
# Which files of Python tests a changed path asks for. The first that fits; {0}: the path's.
TESTS = (
    (r"python/tests/(test_\w+\.py)", ["python/tests/{0}"]),
    (r"tools/(\w+_test)\.py", ["tools/{0}.py"]),
    (r"tools/(\w+)\.py", ["tools/{0}_test.py"]),
    (r"python/tests/ranks/.*", ["python/tests/test_ranks.py"]),
    (r"python/tests/horovod/.*|python/horovod/.*/torch/.*", ["python/tests/test_horovod.py"]),
    (r"python/horovod/.*/runner/.*", ["python/tests/test_horovodrun.py"]),
    (r"python/corro/plan\w*\.py|python/src/plann\w+\.cc", ["python/tests/test_planner.py"]),
    (r"cpp/src/plan/.*|cpp/src/app/planning/.*", ["python/tests/test_plan_command.py"]),
    (r"python/corro/torch/sharded\.py", ["python/tests/test_checkpoint_sharded.py"]),
    (
        r"python/corro/torch/(sharded_state|copies)\.py",
        ["python/tests/test_elastic_sharded.py"],
    ),
    (
        r"python/corro/checkpoint\.py|python/corro/torch/checkpoint\.py|python/src/checkpoint\.cc"
        r"|cpp/src/checkpoint/.*",
        ["python/tests/test_checkpoint.py"],
    ),
    (r"cpp/src/(launch|agent|screen|diagnosis|app)/.*", ["python/tests/test_run.py"]),
    (r"cpp/src/pod/.*", ["python/tests/test_pods.py"]),
    (
        r"python/corro/torch/parallel/(masks|draws|random\w+)\.py",
        ["python/tests/test_parallel_randomness.py"],
    ),
    (r"python/corro/torch/.*", [*RANKS, "python/tests/test_horovod.py"]),
    (r"python/(corro|src)/.*", RANKS),
)
# What C++ programs are made of. Some is data, which their tests read.
NATIVE = re.compile(r"(cpp|cmake)/.*|CMakeLists\.txt|CMakePresets\.json")
# Of suites of their own, those that CI alone runs, for want of time: jobs of other sizes than two.
LEFT_TO_CI = r"\w*_with_(?:one|three|four)_ranks?"


def files_of(changed: Sequence[str], exists: Sequence[str]) -> list[str]:
    """The files of Python tests that the changed paths ask for."""
    found = set()
    for path in changed:
        for pattern, files in TESTS:
            if match := re.fullmatch(pattern, path):
                found |= {file.format(*match.groups()) for file in files}
                break
    return sorted(found & set(exists))


def suites_of(files: Sequence[str]) -> str:
    """What tools/run_tests.py runs for these files."""
    either = "|".join(map(re.escape, files))
    return rf"^\.venv/(?:{either})(?:$|::(?!{LEFT_TO_CI}$))"


def steps(changed: Sequence[str], exists: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """What is run: a name and a command."""
    yield "format", ["make", "format"]
    yield "floors", ["make", "floors"]
    yield "lint", ["tools/lint.sh", "--without-tidy"]
    if any(map(NATIVE.fullmatch, changed)):
        sources = [path for path in changed if re.fullmatch(r"cpp/.*\.(cc|h)", path)]
        if sources := [path for path in sources if path in exists]:
            yield "clang-tidy", [PYTHON, "tools/run_tidy.py", *sources]
        yield "C++ tests", ["make", "build/stamps/native-tests"]
        yield "C++ tests", [PYTHON, "tools/run_tests.py", "--cpp-only"]
    yield "install", ["make", "setup"]
    if files := files_of(changed, exists):
        yield "Python tests", [PYTHON, "tools/run_tests.py", "--only", suites_of(files)]


def tree() -> list[str]:
    """The files that git knows, or would know, and that are there."""
    names = git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    return [name for name in names if (ROOT / name).is_file()]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--since", metavar="REVISION", help="default: where the branch began")
    since = parser.parse_args(argv).since or origin()
    changed = changed_since(since)
    print(f"check: {len(changed)} files differ from {since[:10]}", flush=True)
    failed = []
    environment = os.environ | {"PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"}
    for name, command in steps(changed, tree()):
        started = time.monotonic()
        print(f"check: {name}", flush=True)
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        print(f"check: {name}: {time.monotonic() - started:.0f} s", flush=True)
        failed += [name] if status else []
    print(f"check: failed: {', '.join(failed)}" if failed else "check: all is well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
