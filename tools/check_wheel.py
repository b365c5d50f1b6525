"""Checks a finished wheel and prints its tag and the highest GLIBC symbol that it needs.

    tools/check_wheel.py dist/corro-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl

Its parts are there, nothing needs a newer glibc than the tag promises, no library but glibc's is
needed, and libcorro.so exports the C ABI alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

PARTS = (
    *("corro/libcorro.so", "corro/_native.*.so", "corro/_planner.*.so"),
    *("corro/_checkpoint.*.so", "corro/_tables.*.so"),
    *("corro/libcorro_tensorflow.so", "corro/libcorro_jax.so"),
    *("corro/__init__.py", "*.data/scripts/corro"),
    *("*.data/data/libexec/corro/corro-plan", "*.data/data/libexec/corro/corro-operator"),
    "*.data/data/libexec/corro/corro-checkpoint",
    "*.data/data/libexec/corro/corro-coordinator",
    "*.data/data/libexec/corro/corro-jobs",
    "*.data/data/libexec/corro/corro-server",
)
PROGRAMS = ("*.data/scripts/*", "*.data/data/libexec/corro/*")
GLIBC_LIBRARY = re.compile(r"^(libc|libm|libdl|librt|libpthread|ld-linux-.*)\.so\.\d+$")

Version = tuple[int, ...]


def objdump(flag: str, path: Path) -> str:
    return subprocess.run(
        ["objdump", flag, path], capture_output=True, text=True, check=True
    ).stdout


def needed_glibc(path: Path) -> Version:
    found = re.findall(r"GLIBC_(\d+(?:\.\d+)+)", objdump("-T", path))
    return max((tuple(map(int, version.split("."))) for version in found), default=(0,))


def needed_libraries(path: Path) -> list[str]:
    return re.findall(r"NEEDED\s+(\S+)", objdump("-p", path))


def exported(path: Path) -> list[str]:
    """Names of the defined dynamic symbols."""
    table = [line for line in objdump("-T", path).splitlines() if re.match(r"[0-9a-f]{16} ", line)]
    return [line.split()[-1] for line in table if "*UND*" not in line]


def problems(root: Path, promised: Version) -> Iterator[str]:
    found = {part: list(root.glob(part)) for part in PARTS}
    yield from (f"{part} is missing" for part, paths in found.items() if not paths)
    binaries = [path for paths in found.values() for path in paths if path.suffix != ".py"]
    for path in binaries:
        name = path.relative_to(root)
        if (needed := needed_glibc(path)) > promised:
            yield f"{name} needs GLIBC {needed}, the tag promises {promised}"
        for library in needed_libraries(path):
            engine = library == "libcorro.so" and not name.stem.startswith(
                ("_planner", "_checkpoint", "_tables")
            )
            if not GLIBC_LIBRARY.match(library) and not engine:
                yield f"{name} needs {library}, which not every machine has"
    for path in found["corro/libcorro.so"]:
        yield from (
            f"libcorro.so exports {symbol}"
            for symbol in exported(path)
            if not symbol.startswith("corro_")
        )


def main() -> int:
    wheel = Path(sys.argv[1])
    tag = "-".join(wheel.stem.split("-")[-3:])
    match = re.search(r"manylinux_(\d+)_(\d+)_", tag)
    if not match:
        print(f"wheel: the tag {tag} promises no glibc version", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        root = Path(folder)
        found = list(problems(root, (int(match[1]), int(match[2]))))
        programs = [path for pattern in PROGRAMS for path in root.glob(pattern)]
        highest = max(map(needed_glibc, [*root.rglob("*.so"), *programs]))
    for problem in found:
        print(f"wheel: {problem}", file=sys.stderr)
    size = wheel.stat().st_size / 2**20
    print(f"wheel: {wheel.name} ({size:.1f} MiB)")
    print(f"wheel: tag={tag} highest=GLIBC_{'.'.join(map(str, highest))}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
