"""What a small allreduce costs on its way from Horovod's interface to the engine: counted."""

from __future__ import annotations

import pytest
import torch
from costs import Calls, bytecodes

import corro
import horovod
import horovod.torch as hvd

pytestmark = pytest.mark.usefixtures("job")


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
    assert (
        bytecodes(lambda: hvd.synchronize(hvd.allreduce_async_(x, name="x")), corro, horovod) <= 112
    )
    assert bytecodes(lambda: hvd.allreduce(x, name="x"), corro, horovod) <= 143
