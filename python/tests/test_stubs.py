"""The stub of the native module says what the module has: no more, no less."""

from __future__ import annotations

import ast
from pathlib import Path

import corro
from corro import _native

STUB = ast.parse((Path(corro.__file__).parent / "_native.pyi").read_text())


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def members(node: ast.ClassDef) -> set[str]:
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef)}


def test_the_same_functions_classes_and_constants() -> None:
    described = set()
    for node in STUB.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            described.add(node.target.id)
            assert isinstance(getattr(_native, node.target.id), int)
        elif isinstance(node, ast.FunctionDef) or (
            isinstance(node, ast.ClassDef) and node.name != "Store"
        ):
            described.add(node.name)
    assert described == public(dir(_native))


def test_the_same_methods() -> None:
    for node in STUB.body:
        if isinstance(node, ast.ClassDef) and node.name != "Store":
            cls = getattr(_native, node.name)
            assert public(sorted(members(node))) == public(dir(cls)), node.name
