"""What `corro operator` takes: with 200 jobs of 2 000 pods at once, for a lost pod, and idle.

CORRO_TEST_JOBS=1000 takes as many jobs, by hand: the plane needs many minutes to delete their pods.

Times and memory are told and not tested: the machine may be busy. They run after all other tests;
the many pods come last, since the plane takes minutes to delete them.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness import Plane, QuietFor, wait_until
from jobs import UID_LABEL, Space, corro_manifest, name_of
from operator_process import OperatorProcess

Object = dict[str, Any]

JOBS = int(os.environ.get("CORRO_TEST_JOBS", "200"))
WORKERS = 10
AT_ONCE = 8  # The operator's default of --workers; the bare client's threads.
PATIENCE = 600.0
# What the API server sets itself.
SET = ("serviceAccount", "serviceAccountName", "priority", "preemptionPolicy", "clusterIPs")
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
        with contextlib.suppress(OSError):  # The plane's end.
            while True:  # A server that is busy ends watches of slow readers.
                path = self._space.path("Pod")
                for kind, pod in self._space.api.watch(path, self._version, **query):
                    self._version = str(pod["metadata"]["resourceVersion"])
                    if kind == "ADDED":
                        self._names.add(name_of(pod))
                        self.last = time.monotonic()

    def count(self) -> int:
        return len(self._names)


def in_parallel(call: Callable[[Any], Any], items: list[Any]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(call, items))


MADE = ("Secret", "ConfigMap", "Service", "NetworkPolicy", "Pod")


def bare_copies(space: Space) -> list[tuple[str, Object]]:
    """What the operator has made of the jobs, as it was sent, without owners; job after job."""
    copies = []
    for kind in MADE:
        for made in space.items(kind, labelSelector=UID_LABEL).values():
            meta = {key: made["metadata"].get(key, {}) for key in ("name", "labels", "annotations")}
            body = {"metadata": meta} | {key: made[key] for key in ("data", "type") if key in made}
            if "spec" in made:
                spec = {key: value for key, value in made["spec"].items() if key not in SET}
                if spec.get("clusterIP") != "None":
                    spec.pop("clusterIP", None)
                body["spec"] = spec
            copies.append((str(made["metadata"]["labels"][UID_LABEL]), kind, body))
            meta["labels"] = {k: v for k, v in meta["labels"].items() if k != UID_LABEL}
    return [(kind, body) for _, kind, body in sorted(copies, key=lambda copy: copy[0])]


@pytest.fixture
def second_namespace(plane: Plane) -> Iterator[str]:
    name = f"bare-client-{time.monotonic_ns() % 10**9}"
    plane.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_until(lambda: plane.api.get(account), "the default service account")
    yield name
    plane.api.delete(f"/api/v1/namespaces/{name}")


LOSSES = 20


@pytest.mark.last
@pytest.mark.timeout(600)
def test_how_soon_a_lost_pod_is_replaced(space: Space, capsys: pytest.CaptureFixture[str]) -> None:
    """From the event that tells of the loss to the one that tells of its replacement."""
    rule = {"backoffSeconds": 0, "maxBackoffSeconds": 0, "limit": LOSSES}
    job = space.corro_job("a", 2, restart={"lostPod": rule})
    job.wait_for_running(job.workers(0, 0))
    version = str(space.api.get(space.path("Pod"), limit=1)["metadata"]["resourceVersion"])
    lost: dict[str, float] = {}
    made: dict[str, float] = {}

    def watch() -> None:
        for kind, pod in space.api.watch(space.path("Pod"), version):
            if kind == "ADDED":
                made[name_of(pod)] = time.monotonic()
            elif kind == "MODIFIED" and pod["status"].get("phase") == "Failed":
                lost.setdefault(name_of(pod), time.monotonic())

    threading.Thread(target=watch, daemon=True).start()
    for generation in range(LOSSES):
        space.command(f"a-worker-1-g{generation}", "evict")
        job.wait_for_running(job.workers(0, generation + 1))
    times = [made[f"a-worker-1-g{g + 1}"] - lost[f"a-worker-1-g{g}"] for g in range(LOSSES)]
    with capsys.disabled():
        print(
            f"\na lost pod was replaced {1000 * statistics.median(times):.0f} ms after the event"
            f" that told of it (the slowest of {LOSSES}: {1000 * max(times):.0f} ms)"
        )


@pytest.mark.last
@pytest.mark.timeout(300)
def test_what_an_idle_operator_takes(
    space: Space, operator: OperatorProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    job = space.corro_job("a", 2)
    job.wait_for_running(job.workers(0, 0))
    quiet = QuietFor(5.0)
    wait_until(lambda: quiet.holds(operator.api_calls()), "no calls for 5 s", PATIENCE)
    before, began = operator.cpu_seconds(), time.monotonic()
    time.sleep(30)  # What is told is what 30 seconds of nothing cost.
    share = (operator.cpu_seconds() - before) / (time.monotonic() - began)
    with capsys.disabled():
        print(
            f"\nan idle operator took {100 * share:.3f} % of a core"
            f" and {operator.memory() / 1024:.1f} MiB"
        )


# mpijob different: flags-defaults
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
        manifest = corro_manifest(f"job-{i:04}", WORKERS)
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
    wanted = {f"job-{i:04}-worker-{k}-g0" for i in range(JOBS) for k in range(WORKERS)}
    assert {name_of(pod) for pod in pods} == wanted
    wait_until(lambda: all_told(space), "every job telling what it waits for", PATIENCE)
    assert not [line for line in operator.log() if line["level"] == "error"]

    other = Space(space.plane, second_namespace)
    bare_arrivals = Arrivals(other)
    copies = bare_copies(space)
    began = time.monotonic()
    in_parallel(lambda copy: other.api.post(other.path(copy[0]), copy[1]), copies)
    wait_until(lambda: bare_arrivals.count() == len(pods), "the bare client's pods", PATIENCE)
    by_client = bare_arrivals.last - began

    calls = operator.api_calls()
    with capsys.disabled():
        print(
            f"\n{JOBS} jobs, {JOBS * WORKERS} workers: created {by_operator:.1f} s after the first"
            f" job was sent (all sent after {applied:.1f} s); a bare client of {AT_ONCE} threads"
            f" takes {by_client:.1f} s for the same {len(copies)} objects:"
            f" {by_operator / by_client:.2f} x; the operator had at most"
            f" {operator.peak_memory() / 1024:.1f} MiB, {operator.cpu_seconds():.1f} s of CPU,"
            f" {calls:.0f} calls"
        )


def all_told(space: Space) -> bool:
    jobs = space.items("CorroJob").values()
    return all((job.get("status") or {}).get("desired") == WORKERS for job in jobs)
