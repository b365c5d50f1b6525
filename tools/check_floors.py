"""Checks every include, link and import against cmake/floors.txt.

    tools/check_floors.py [ROOT]

A folder of cpp/src (and cpp/testing, cpp/bench) is a floor, and so is a folder inside it. A floor
may include and link what its line allows and nothing else. In python/, a front end may import the
core and its own framework, the core neither. Imports by name count: import_module("x"),
__import__("x"), find_spec("x"), and entry points, "x:function". Every source but those of the bench
has to be built by a CMakeLists.txt of its folder or one above.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = "tests"
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^"<>]+)/[^"<>/]+[">]')  # folder of the header
CALL = re.compile(
    r"\b(?:corro_library|corro_shared_library|corro_executable|corro_test|corro_fuzz|corro_use_floors)\s*\(([^)]*)\)"
)
LINKED = re.compile(r"\bcorro_(\w+)")
IMPORTERS = {"import_module", "__import__", "find_spec"}
ENTRY_POINT = re.compile(r"(\w+(?:\.\w+)+):\w+")  # module:function
BY_NAME = "~"
OF_FLOORS = {"USES", "PUBLIC", "PRIVATE"}
KEYWORDS = {"NAME", "SOURCES", "LINKS", "LABELS", "TIMEOUT", "SEEDS"}

Floors = dict[str, set[str]]


def read_floors(path: Path) -> tuple[Floors, list[str]]:
    """Reads the table; a name used before its own line is an arrow up (or part of a circle)."""
    floors: Floors = {}
    problems = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        name, _, uses = text.partition(":")
        allowed = set(uses.split())
        if not name.startswith("python/"):
            problems += [
                f"{path}:{number}: {name} uses {up}, which does not stand below it"
                for up in sorted(allowed - floors.keys())
            ]
        floors[name] = allowed
    return floors, problems


def folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Yields (floor, folder) for every native folder there is, at any depth."""
    for top, at in {"cpp/src": "cpp/src", "cpp/testing": "cpp", "cpp/bench": "cpp"}.items():
        for folder in sorted([root / top, *(root / top).rglob("*")]):
            if folder.name == "__pycache__":  # The bench's programs in Python have been run.
                continue
            if folder.name in {"golden", "instances", "measured"}:  # What tests beside it read.
                continue
            if folder.is_dir() and folder != root / "cpp/src":
                yield str(folder.relative_to(root / at)), folder


def included_floor(line: str, floor: str, floors: Floors) -> str | None:
    """The floor whose header the line of a file of `floor` includes.

    A compiler looks beside the file too: "board/x.h" in collective/ is collective/board/x.h.
    """
    match = INCLUDE.match(line)
    if not match:
        return None
    beside = os.path.normpath(f"{floor}/{match[1]}")
    return next((name for name in (match[1], beside) if name in floors), None)


def linked_floors(cmake: str, floors: Floors) -> Iterator[str]:
    """Yields the floors that a CMakeLists.txt links: in USES lists, and by a target's full name."""
    for call in CALL.findall(cmake):
        keyword = ""
        for word in call.split():
            if word in KEYWORDS | OF_FLOORS:
                keyword = word
            elif keyword in OF_FLOORS:
                yield word
    of_target = {name.replace("/", "_"): name for name in floors}
    for name in LINKED.findall(cmake):
        if name in of_target:
            yield of_target[name]


def check_native(root: Path, floors: Floors) -> Iterator[str]:
    for floor, folder in folders(root):
        if floor not in floors:
            yield f"{folder}: no line for it in cmake/floors.txt"
            continue
        allowed = floors[floor] | {floor}
        of_tests = allowed | floors.get(TESTS, set())
        for path in sorted(folder.iterdir()):
            if path.name == "CMakeLists.txt":
                for linked in linked_floors(path.read_text(), floors):
                    if linked not in of_tests:
                        yield f"{path}: {floor} may not link {linked}"
            elif path.suffix in {".h", ".cc", ".cu"}:
                own = of_tests if path.stem.endswith("_test") else allowed
                for number, line in enumerate(path.read_text().splitlines(), start=1):
                    used = included_floor(line, floor, floors)
                    if used and used not in own:
                        yield f"{path}:{number}: {floor} may not include {used}/"


def check_built(root: Path) -> Iterator[str]:
    """A source that no CMakeLists.txt names is not compiled, and a test of it never runs."""
    for floor, folder in folders(root):
        if floor == "bench":
            continue  # Its programs are named by a pattern.
        above = [at for at in (folder, *folder.parents) if at.is_relative_to(root / "cpp")]
        lists = [at / "CMakeLists.txt" for at in above]
        named = " ".join(path.read_text() for path in lists if path.exists())
        for path in sorted(folder.glob("*.cc")):
            if not re.search(rf"(?<![\w.-]){re.escape(path.name)}\b", named):
                yield f"{path}: no CMakeLists.txt names it"


def imports_by_name(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Yields (line, absolute module name) of import_module() and the like, and of entry points."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else ""
            called = function.id if isinstance(function, ast.Name) else called
            name = node.args[0]
            if called in IMPORTERS and isinstance(name, ast.Constant):
                module = str(name.value)
                level = len(module) - len(module.lstrip("."))
                parts = package.split(".")
                base = parts[: len(parts) - level + 1] if level else []
                yield node.lineno, ".".join([*base, module[level:]])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            match = ENTRY_POINT.fullmatch(node.value)
            if match:
                yield node.lineno, match[1]


def imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Yields (line, absolute module name) of every import; `package` is where it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            module = ".".join(base) if node.level else ""
            module = ".".join(part for part in (module, node.module or "") if part)
            # `from x import y`: y may be a module of x.
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def owner(module: str, names: list[str]) -> str | None:
    """The longest name of the table that the module is or lies in."""
    fitting = [name for name in names if module == name or module.startswith(name + ".")]
    return max(fitting, key=len, default=None)


def python_sources(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yields (folder of the distribution, source) for every package of python/."""
    for folder, package in ((root / "python", "corro"), (root / "python/horovod", "horovod")):
        for path in sorted(folder.glob(f"{package}/**/*.py")):
            yield folder, path


def check_python(root: Path, floors: Floors) -> Iterator[str]:
    table = {
        name.removeprefix("python/"): {use.replace("python/", "") for use in uses}
        for name, uses in floors.items()
        if name.startswith("python/")
    }
    uses = {use.lstrip(BY_NAME) for uses in table.values() for use in uses}
    known = [*table, *(uses - table.keys())]
    for folder, path in python_sources(root):
        parts = path.relative_to(folder).with_suffix("").parts
        package = ".".join(parts[:-1])
        own = owner(".".join(parts).removesuffix(".__init__"), list(table))
        tree = ast.parse(path.read_text())
        for line, module in imports(tree, package):
            used = owner(module, known)
            if own and used and used != own and used not in table[own]:
                yield f"{path}:{line}: {own} may not import {used}"
        for line, module in imports_by_name(tree, package):
            used = owner(module, known)
            if own and used and used != own and not table[own] & {used, BY_NAME + used}:
                yield f"{path}:{line}: {own} may not import {used} by name"


def check(root: Path) -> list[str]:
    floors, problems = read_floors(root / "cmake/floors.txt")
    return [
        *problems,
        *check_native(root, floors),
        *check_built(root),
        *check_python(root, floors),
    ]


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem.removeprefix(f"{root}/"), file=sys.stderr)
    print(f"floors: {len(problems)} problems" if problems else "floors: every arrow points down")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
