"""Tests on a real node; node.sh starts it, and `make test-kube-node` runs them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

from jobs import Space  # noqa: E402
from node_jobs import VERSION  # noqa: E402
from operator_process import OperatorProcess  # noqa: E402
from pods_seen import MEASURED  # noqa: E402


@pytest.fixture
def operator(bare_space: Space) -> Iterator[OperatorProcess]:
    """An operator in the namespace, whose pods bring corro from the image that was built here."""
    options = ("--agent-image", f"corro:{VERSION}")
    with OperatorProcess(bare_space.kubeconfig, bare_space.name, *options) as process:
        yield process
        process.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in MEASURED:
        terminalreporter.write_line(line)
