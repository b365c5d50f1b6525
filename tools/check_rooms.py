"""Counts the methods of every class in cpp/src, and the lines of runtime/engine.h and engine.cc.

    tools/check_rooms.py [ROOT]

A class is a room with one owner (docs/design/0008-rooms.md), and more than 25 methods are a sign of
two. A sign is all that it is, so this only warns: a class that is cut to fit the count gains
nothing. Methods are the functions that a class body declares, public and private, one-line
accessors too. Constructors, destructors and operators are none; functions of classes inside count
for those.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_METHODS = 25
MOST_LINES = {"runtime/engine.h": 300, "runtime/engine.cc": 300}

# Comments, and text in quotes: neither may look like code.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
ATTRIBUTE = r"(?:(?:alignas|CORRO_[A-Z_]+)(?:\s*\([^()]*\))?\s+)*"
CLASS = re.compile(
    rf"(?<!enum )\b(?:class|struct)\s+{ATTRIBUTE}(\w+)(?:\s+final)?\s*(?::[^;{{(]*)?\{{"
)
ANGLES = re.compile(r"<[^<>]*>")
# What has parentheses and is no list of parameters.
WRAPPED = re.compile(r"\b(?:alignas|CORRO_[A-Z_]+)\s*\([^()]*\)|\[\[.*?\]\]")
NO_METHOD = re.compile(r"\b(?:using|typedef|friend|static_assert|operator|enum|class|struct)\b|~")
FUNCTION = re.compile(r"(\w+)\s*\(")


def body_at(text: str, begin: int) -> str:
    """Returns what stands between the brace before `begin` and the one that closes it."""
    depth = 1
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin:at]
    return text[begin:]


def declarations(body: str) -> Iterator[str]:
    """Yields the declarations of a class body, with {} for whatever stands in braces."""
    depth, text = 0, ""
    for at, character in enumerate(body):
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                text += "{}"
                # A list of initializers goes on, and so does a variable with its value.
                if not body[at + 1 :].lstrip().startswith((",", ";", "{")):
                    yield text
                    text = ""
        elif depth == 0 and character == ";":
            yield text
            text = ""
        elif depth == 0:
            text += character


def method_of(declaration: str, name: str) -> str | None:
    """Returns the method of class `name` that is declared; None if it is something else."""
    text = re.sub(r"\b(?:public|protected|private)\s*:", "", declaration)
    while ANGLES.search(text):
        text = ANGLES.sub("", text)
    text = WRAPPED.sub("", text).partition("=")[0].strip()
    text = text.removeprefix("template").strip()
    function = FUNCTION.search(text.partition("{")[0])
    if function is None or NO_METHOD.search(text[: function.end()]) or function[1] == name:
        return None
    return function[1]


def classes(source: str) -> Iterator[tuple[str, list[str]]]:
    """Yields (class, its methods) of a file; overloads count one by one."""
    text = NO_CODE.sub('""', source)
    for found in CLASS.finditer(text):
        methods = [method_of(one, found[1]) for one in declarations(body_at(text, found.end()))]
        yield found[1], [method for method in methods if method]


def check(root: Path) -> list[str]:
    """Returns a warning for each class and file of cpp/src that is large."""
    warnings = []
    folder = root / "cpp/src"
    for path in sorted([*folder.rglob("*.h"), *folder.rglob("*.cc")]):
        source = path.read_text()
        name = str(path.relative_to(folder))
        lines, most = source.count("\n"), MOST_LINES.get(name)
        if most and lines > most:
            warnings.append(f"{name}: {lines} lines, more than {most}")
        if path.stem.endswith("_test"):
            continue
        for room, methods in classes(source):
            if len(methods) > MOST_METHODS:
                warnings.append(
                    f"{name}: {room} has {len(methods)} methods, more than {MOST_METHODS}"
                )
    return warnings


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    warnings = check(root)
    for warning in warnings:
        print(f"rooms: warning: {warning}")
    if not warnings:
        print("rooms: none is large")


if __name__ == "__main__":
    main()
