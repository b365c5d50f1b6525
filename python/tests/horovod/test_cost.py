"""What a small allreduce costs on its way from Horovod's interface to the engine: counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import corro
import horovod
import horovod.torch as hvd

OURS = (str(Path(corro.__file__).parent), str(Path(horovod.__file__).parent))


pytestmark = pytest.mark.usefixtures("job")


def bytecodes(call: Callable[[], object]) -> int:
    """Returns how many bytecodes of corro's and of Horovod's interface a call runs, once warm."""
    count = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace if frame.f_code.co_filename.startswith(OURS) else None

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


@pytest.fixture
def calls(job: None, monkeypatch: pytest.MonkeyPatch) -> Calls:  # noqa: ARG001  # Before it there is no group.
    seen = Calls(hvd.global_process_set.native)
    monkeypatch.setattr(hvd.global_process_set, "native", seen)
    return seen


def test_an_allreduce_is_one_native_call(calls: Calls) -> None:
    x = torch.ones(3)
    hvd.allreduce(x, name="x", op=hvd.Sum)
    hvd.allreduce_(x)
    assert calls.names == ["run_named", "run_named"]
    hvd.synchronize(hvd.allreduce_async_(x))
    hvd.synchronize(hvd.allreduce_async(x, name="x", op=hvd.Max))
    assert calls.names[2:] == ["start_named", "start_named"]


def test_an_allreduce_runs_few_bytecodes() -> None:
    x = torch.ones(3)
    assert bytecodes(lambda: hvd.synchronize(hvd.allreduce_async_(x, name="x"))) <= 115
    assert bytecodes(lambda: hvd.allreduce(x, name="x")) <= 145
