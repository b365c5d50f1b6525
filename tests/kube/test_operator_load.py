"""`corro operator` with 200 jobs of 2 000 pods at once: what it makes, and what it takes for that.

Times and memory are told and not tested: the machine may be busy. It runs after all other tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness import Plane, wait_until
from jobs import UID_LABEL, Space, corro_manifest, name_of
from operator_process import OperatorProcess

Object = dict[str, Any]

JOBS = 200
WORKERS = 10
AT_ONCE = 8  # The operator's default of --workers; the bare client's threads.
PATIENCE = 600.0
# Pods that no node takes: what is measured is their creation, not the scheduler and fake nodes.
NOWHERE = {"nodeSelector": {"there-is": "none"}}


class Arrivals:
    """Counts the workers that appear in a namespace, and when the last one did."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._names: set[str] = set()
        self.last = 0.0
        answer = space.api.get(space.path("Pod"), limit=1)
        self._version = str(answer["metadata"]["resourceVersion"])
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        query = {"labelSelector": "training.corro.dev/role=worker"}
        for kind, pod in self._space.api.watch(self._space.path("Pod"), self._version, **query):
            if kind == "ADDED":
                self._names.add(name_of(pod))
                self.last = time.monotonic()

    def count(self) -> int:
        return len(self._names)


def in_parallel(call: Callable[[Any], Any], items: list[Any]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(call, items))


def bare_copy(pod: Object) -> Object:
    """The pod as it was sent, without its owner."""
    meta = {key: pod["metadata"][key] for key in ("name", "labels", "annotations")}
    meta["labels"] = {k: v for k, v in meta["labels"].items() if k != UID_LABEL}
    defaults = ("serviceAccount", "serviceAccountName", "priority", "preemptionPolicy")
    spec = {key: value for key, value in pod["spec"].items() if key not in defaults}
    return {"metadata": meta, "spec": spec}


@pytest.fixture
def second_namespace(plane: Plane) -> Iterator[str]:
    name = f"bare-client-{time.monotonic_ns() % 10**9}"
    plane.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_until(lambda: plane.api.get(account), "the default service account")
    yield name
    plane.api.delete(f"/api/v1/namespaces/{name}")


@pytest.mark.last
@pytest.mark.timeout(1500)
def test_two_hundred_jobs_at_once(
    space: Space,
    operator: OperatorProcess,
    second_namespace: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifests = []
    for i in range(JOBS):
        manifest = corro_manifest(f"job-{i:03}", WORKERS)
        manifest["spec"]["gang"] = "Off"
        manifest["spec"]["worker"]["template"]["spec"] |= NOWHERE
        manifests.append(manifest)
    arrivals = Arrivals(space)
    began = time.monotonic()
    in_parallel(lambda manifest: space.api.post(space.path("CorroJob"), manifest), manifests)
    applied = time.monotonic() - began
    wait_until(lambda: arrivals.count() == JOBS * WORKERS, "all workers", PATIENCE)
    by_operator = arrivals.last - began

    pods = [p for p in space.items("Pod").values() if "-worker-" in name_of(p)]
    wanted = {f"job-{i:03}-worker-{k}-g0" for i in range(JOBS) for k in range(WORKERS)}
    assert {name_of(pod) for pod in pods} == wanted
    wait_until(lambda: all_told(space), "every job telling what it waits for", PATIENCE)
    assert not [line for line in operator.log() if line["level"] == "error"]

    other = Space(space.plane, second_namespace)
    bare_arrivals = Arrivals(other)
    bodies = [bare_copy(pod) for pod in pods]
    began = time.monotonic()
    in_parallel(lambda body: other.api.post(other.path("Pod"), body), bodies)
    wait_until(lambda: bare_arrivals.count() == len(bodies), "the bare client's pods", PATIENCE)
    by_client = bare_arrivals.last - began

    calls = operator.api_calls()
    with capsys.disabled():
        print(
            f"\n{JOBS} jobs, {JOBS * WORKERS} workers: created {by_operator:.1f} s after the first"
            f" job was sent (all sent after {applied:.1f} s); a bare client of {AT_ONCE} threads"
            f" takes {by_client:.1f} s for the same pods; the operator had at most"
            f" {operator.peak_memory() / 1024:.1f} MiB, {operator.cpu_seconds():.1f} s of CPU,"
            f" {calls:.0f} calls"
        )


def all_told(space: Space) -> bool:
    jobs = space.items("CorroJob").values()
    return all((job.get("status") or {}).get("desired") == WORKERS for job in jobs)
