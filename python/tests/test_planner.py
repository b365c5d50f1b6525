"""The planner from Python: the door to the native code, and corro.plan()."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import corro
from corro import _planner

pytestmark = pytest.mark.torch22

PLAN = (Path(__file__).resolve().parents[2] / "cpp/src/plan/pipeline.json").read_text()


def test_the_door_needs_neither_torch_nor_numpy_nor_the_engine() -> None:
    code = "import sys; from corro import _planner\nprint(*sys.modules, *open('/proc/self/maps'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "corro._planner" in done.stdout.split()
    assert not {"torch", "numpy", "corro._native"} & set(done.stdout.split())
    assert "libcorro.so" not in done.stdout


def test_the_door_has_the_version_of_the_package() -> None:
    assert _planner.version() == corro.__version__


def test_text_goes_in_and_comes_out() -> None:
    assert _planner.plan_file(PLAN, "pipeline.json") == PLAN


def test_what_is_refused_is_an_exception_of_its_code() -> None:
    with pytest.raises(corro.InvalidArgumentError, match=r"^a\.json: ranks: is missing$"):
        _planner.plan_file('{"corro_plan": 1}', "a.json")


def test_threads_enter_at_once() -> None:
    results: list[str] = []

    def enter() -> None:
        results.extend(_planner.plan_file(PLAN, "pipeline.json") for _ in range(20))

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [PLAN] * 80
