"""Runs clang-tidy over the native code, two passes never over the same content.

    tools/run_tidy.py [--build build/ci] [FILE...]

What passed is remembered outside of the tree (passed.py) under a hash of the file, the project's
headers that it reaches, its command, the configuration, Debian's packages and the tool's version,
so that only what changed is read again; CI_FULL=1 reads all. Tests are left to the compilers. With
files named, only they are read; a header stands for the source beside it, or else for the first one
that includes it.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from passed import ROOT, debian_packages, memory_folder, runs_all

CLANG_TIDY = Path(sys.executable).with_name("clang-tidy")
INCLUDE = re.compile(rb'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
FOLDERS = ("cpp/src", "cpp/include", "cpp")  # Where the compilers look for the project's headers.


def reached(source: Path, root: Path = ROOT) -> list[Path]:
    """The source and every header of the project that it includes, at any depth."""
    found = [source]
    for path in found:
        for name in INCLUDE.findall(path.read_bytes()):
            for folder in (*(root / each for each in FOLDERS), path.parent):
                header = folder / os.fsdecode(name)
                if header.exists() and header not in found:
                    found.append(header)
    return found


@functools.cache
def tool() -> bytes:
    """What decides beside the source: clang-tidy's version, its configuration, system headers."""
    version = subprocess.run([CLANG_TIDY, "--version"], capture_output=True, check=True).stdout
    return version + (ROOT / ".clang-tidy").read_bytes() + debian_packages()


def fingerprint(source: Path, command: str) -> str:
    digest = hashlib.sha256(tool())
    digest.update(command.replace(str(ROOT), "").encode())
    for path in reached(source):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def sources_of(names: Iterable[Path], sources: Sequence[Path], root: Path = ROOT) -> set[Path]:
    """Which sources are to be read for the named files."""
    wanted = set()
    for name in names:
        own = name.with_suffix(".cc")
        includers = (each for each in sources if name in reached(each, root))
        wanted |= {own} if own in sources else set(islice(includers, 1))
    return wanted


def tidy(build: Path, source: Path) -> str:
    """Returns what clang-tidy complains about, or nothing."""
    command = [str(CLANG_TIDY), "--quiet", f"-p={build}", str(source)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stdout if run.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/ci")
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    options = parser.parse_args()
    build = options.build
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"]).resolve()  # CMake keeps the link that a checkout is behind.
        if source.is_relative_to(ROOT / "cpp") and not source.stem.endswith("_test"):
            commands[source] = entry["command"]
    wanted = list(commands)
    if options.files:
        named = sources_of([ROOT / path for path in options.files], wanted)
        wanted = [source for source in wanted if source in named]

    passed = memory_folder() / "tidy"
    passed.mkdir(parents=True, exist_ok=True)
    todo = {}
    for source in wanted:
        stamp = passed / fingerprint(source, commands[source])
        if runs_all() or not stamp.exists():
            todo[source] = stamp

    bad = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for (source, stamp), complaint in zip(
            todo.items(), pool.map(lambda source: tidy(build, source), todo), strict=True
        ):
            if complaint:
                bad.append(str(source.relative_to(ROOT)))
                print(complaint, flush=True)
            else:
                stamp.touch()
                print(f"clang-tidy: {source.relative_to(ROOT)}", flush=True)
    print(f"clang-tidy: {len(todo)} files read, {len(bad)} with complaints", *bad)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
