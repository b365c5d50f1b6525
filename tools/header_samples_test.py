"""Compiles the code samples in the comments of the public headers, as C and as C++.

A sample is an indented block of a comment with a statement in it: `;` at the end of a line.
"""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

INCLUDE = Path(__file__).resolve().parent.parent / "cpp/include"
COMMENT = re.compile(r"^/\*.*?\*/", re.DOTALL | re.MULTILINE)
# What the sentences around a sample say is there already, unless the sample declares it.
GIVEN = {
    "corro_error": "error",
    "corro_group *": "group",
    "corro_plan *": "plan",
    "float *": "gw gb",
    "uint64_t": "steps",
}
COMPILERS = {
    "c": ("gcc", "-xc", "-std=c11", "-Wall", "-Wextra"),
    "c++": ("g++", "-xc++", "-std=c++20", "-Wall", "-Wextra", "-Wno-missing-field-initializers"),
}


def samples(header: str) -> Iterator[tuple[int, str]]:
    """Yields (line, code) of each sample in the block comments of a header."""
    for comment in COMMENT.finditer(header):
        first = header.count("\n", 0, comment.start()) + 1
        lines = [re.sub(r"^ ?(?:/\*|\*/?)", "", line) for line in comment[0].splitlines()]
        block = list[str]()
        for number, line in enumerate([*lines, ""], first):
            if line.startswith("   "):
                block.append(line[3:])
                continue
            if any(row.split("//")[0].rstrip().endswith(";") for row in block):
                yield number - len(block), "\n".join(block)
            block = []


def program(header: str, code: str) -> str:
    """Returns a source file with the sample as a function's body."""
    given = [
        f"{kind} {name}"
        for kind, names in GIVEN.items()
        for name in names.split()
        if re.search(rf"\b{name}\b", code) and not re.search(rf"^{kind} {name};", code, re.M)
    ]
    return (
        f"#include <{header}>\n#include <stdio.h>\n"
        f"int sample({', '.join(given) or 'void'});\nint sample({', '.join(given) or 'void'}) {{\n"
        f"{textwrap.indent(code, '  ')}\n  return 0;\n}}\n"
    )


def compile_sample(language: str, source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMPILERS[language], "-Werror", "-fsyntax-only", f"-I{INCLUDE}", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )


SAMPLES = [
    (str(path.relative_to(INCLUDE)), line, code)
    for path in sorted(INCLUDE.rglob("*.h"))
    for line, code in samples(path.read_text())
]


@pytest.mark.parametrize("language", COMPILERS)
@pytest.mark.parametrize(
    ("header", "code"), [pytest.param(h, code, id=f"{h}:{line}") for h, line, code in SAMPLES]
)
def test_a_sample_of_a_public_header_compiles(header: str, code: str, language: str) -> None:
    done = compile_sample(language, program(header, code))
    assert done.returncode == 0, done.stderr


def test_samples_are_found_by_their_statements() -> None:
    header = "/* One.\n *\n *   int x;\n *   x = 1;  // set\n *\n *   A TABLE\n */\n/* None; */\n"
    assert list(samples(header)) == [(3, "int x;\nx = 1;  // set")]
    assert SAMPLES[0][1] == 3


def test_a_stale_sample_is_refused() -> None:
    stale = SAMPLES[0][2].replace("corro_engine_create", "corro_engine_make")
    assert "corro_engine_make" in compile_sample("c", program(SAMPLES[0][0], stale)).stderr
