"""The stubs of the native modules say what the modules have: no more, no less."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

import corro
from corro import _checkpoint, _native, _planner

pytestmark = pytest.mark.parametrize("module", [_checkpoint, _native, _planner])


def stub_of(module: ModuleType) -> ast.Module:
    stub = module.__name__.rpartition(".")[2]
    return ast.parse((Path(corro.__file__).parent / f"{stub}.pyi").read_text())


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def members(node: ast.ClassDef) -> set[str]:
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef)}


def test_the_same_functions_classes_and_constants(module: ModuleType) -> None:
    described = set()
    for node in stub_of(module).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            described.add(node.target.id)
            assert isinstance(getattr(module, node.target.id), int)
        elif isinstance(node, ast.FunctionDef) or (
            isinstance(node, ast.ClassDef) and node.name != "Store"
        ):
            described.add(node.name)
    assert described == public(dir(module))


def test_the_same_methods(module: ModuleType) -> None:
    for node in stub_of(module).body:
        if isinstance(node, ast.ClassDef) and node.name != "Store":
            cls = getattr(module, node.name)
            assert public(sorted(members(node))) == public(dir(cls)), node.name
