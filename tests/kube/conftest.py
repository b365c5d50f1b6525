"""A plane for all tests of this folder, a namespace for each, and the totals as the last line."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# These need what node.sh starts.
collect_ignore = [] if "CORRO_NODE_FOLDER" in os.environ else ["node"]
sys.path[:0] = [str(HERE)]

from harness import Plane, apply_crds, own_plane, wait_until  # noqa: E402
from jobs import Space  # noqa: E402
from operator_process import OperatorProcess  # noqa: E402


@pytest.fixture(scope="session")
def plane() -> Iterator[Plane]:
    """The plane that KUBECONFIG names if up.sh made it (`make test-kube`), else one of our own."""
    given = Path(os.environ.get("KUBECONFIG", "/none")).parent
    if (given / "pids").exists():
        yield Plane(given)
        return
    with own_plane("--gang") as started:
        yield started


@pytest.fixture(scope="session")
def crds(plane: Plane) -> Plane:
    """The plane with our custom resources."""
    apply_crds(plane)
    return plane


@pytest.fixture
def namespace(plane: Plane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace, whose pods a controller may make; its end is not waited for."""
    plain = "".join(c if c.isalnum() else "-" for c in request.node.name.lower())
    name = f"{plain.strip('-')[:40]}-{time.monotonic_ns() % 10**9}".replace("--", "-")
    body = {"metadata": {"name": name}}
    plane.api.post("/api/v1/namespaces", body)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_until(lambda: plane.api.get(account), "the default service account")
    yield name
    plane.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def bare_space(crds: Plane, namespace: str) -> Space:
    """The namespace, with our custom resources and without an operator."""
    return Space(crds, namespace)


@pytest.fixture
def operator(bare_space: Space) -> Iterator[OperatorProcess]:
    """An operator in the namespace, which has to end well after the test."""
    with OperatorProcess(bare_space.kubeconfig, bare_space.name) as process:
        yield process
        process.stop()


@pytest.fixture
def space(bare_space: Space, operator: OperatorProcess) -> Space:
    """The namespace, where an operator leads."""
    operator.wait_for("leads")
    return bare_space


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What loads the plane most comes last."""
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The totals once more, in the form of `make test`, so that they are the last line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not (stats := reporter.stats):
        return
    failed = len(stats.get("failed", [])) + len(stats.get("error", []))
    passed, skipped = len(stats.get("passed", [])), len(stats.get("skipped", []))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
