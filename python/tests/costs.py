"""What a call costs on its way to the engine: counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def bytecodes(call: Callable[[], object], *packages: ModuleType) -> int:
    """Returns how many bytecodes of these packages' own a call runs, once everything is warm."""
    count = 0
    folders = tuple(str(Path(str(package.__file__)).parent) for package in packages)

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace if frame.f_code.co_filename.startswith(folders) else None

    for _ in range(3):
        call()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


class Calls:
    """Stands for an engine's group, and writes down which methods are called."""

    def __init__(self, native: Any) -> None:
        self.native, self.names = native, []

    def __getattr__(self, name: str) -> Any:
        self.names.append(name)
        return getattr(self.native, name)
