"""`corro operator` on a plane of its own, where nodes, the API server and the CRDs are not safe."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api import ApiError
from harness import (
    CRDS,
    MANIFESTS,
    ROOT,
    Plane,
    QuietFor,
    apply_crds,
    is_established,
    own_plane,
    wait_until,
)
from jobs import DO, Job, Space, corro_manifest, mpi_manifest
from operator_process import OperatorProcess

Object = dict[str, Any]


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    """Hides the plane of all other tests. A silent node is lost after 6 s here."""
    with own_plane("--node-grace", "6") as started:
        yield started


@pytest.fixture(scope="module")
def crds(plane: Plane) -> Plane:
    apply_crds(plane)
    return plane


def start(space: Space, name: str = "a", target: int = 2) -> Job:
    job = space.corro_job(name, target)
    job.wait_for_running(job.workers(*[0] * target))
    return job


# --- A node --------------------------------------------------------------------------------------


def on_a_node_each(manifest: Object) -> Object:
    """Workers that do not share nodes."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"training.corro.dev/role": "worker"}},
    }
    manifest["spec"]["worker"]["template"]["spec"] |= {
        "topologySpreadConstraints": [spread],
    }
    return manifest


def silence(plane: Plane, node: str, do: str | None) -> None:
    plane.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {DO: do}}})


def test_a_lost_nodes_worker_is_replaced_elsewhere_and_not_waited_for(
    crds: Plane, space: Space
) -> None:
    job = space.create(on_a_node_each(corro_manifest("a")))
    job.wait_for_running(job.workers(0, 0))
    lost = job.pods()["a-worker-1-g0"]
    node = lost["spec"]["nodeName"]
    silence(crds, node, "silent")
    status = job.wait_for_running(job.workers(0, 1))
    assert status["restartCounts"]["lostPod"] == 1
    assert job.pods()["a-worker-1-g1"]["spec"]["nodeName"] != node
    assert "deletionTimestamp" in job.objects("Pod")["a-worker-1-g0"]["metadata"]
    # Its object goes too, though no kubelet says that it has ended.
    job.wait_until(lambda: "a-worker-1-g0" not in job.objects("Pod"), "the stuck pod's end")
    assert job.status()["restarts"] == 1
    silence(crds, node, None)
    wait_until(lambda: is_ready(crds, node), f"{node} being back")


def is_ready(plane: Plane, node: str) -> bool:
    conditions = plane.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


# --- The API server ------------------------------------------------------------------------------


class ApiServer:
    """The plane's own; down.sh ends it, whichever process it is by then."""

    def __init__(self, plane: Plane) -> None:
        self._pids: Path = plane.folder / "pids"
        lines = self._pids.read_text().splitlines()
        self._pid = next(int(line.split()[1]) for line in lines if line.startswith("apiserver "))
        self._command = Path(f"/proc/{self._pid}/cmdline").read_text().split("\0")[:-1]
        self._log = plane.folder / "apiserver.log"

    def stop(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def restart(self) -> None:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        with self._pids.open("a") as pids:
            pids.write(f"apiserver {process.pid} {stat[19]}\n")


def is_served(plane: Plane) -> bool:
    try:
        return bool(plane.api.get("/api/v1/namespaces"))
    except OSError:
        return False


# mpijob different: lost-lead
@pytest.mark.parametrize("how", ["hangs", "dies"])
def test_an_api_server_that_goes_away_is_waited_for(
    crds: Plane, space: Space, operator: OperatorProcess, how: str
) -> None:
    """It is away until the leader has given up leading, 10 s after its last renewal."""
    job = start(space)
    uids = {name: pod["metadata"]["uid"] for name, pod in job.objects("Pod").items()}
    server = ApiServer(crds)
    server.stop() if how == "hangs" else server.kill()
    try:
        operator.wait_for("follows")
        assert operator.page("/healthz")[0] == 200
        used = operator.cpu_seconds()
        began = time.monotonic()
    finally:
        server.go_on() if how == "hangs" else server.restart()
    wait_until(lambda: is_served(crds), "the API server's answer")
    spent = (operator.cpu_seconds() - used) / (time.monotonic() - began)
    print(f"while the API server was away: {100 * spent:.1f} % of a core")
    operator.wait_for("leads", count=2)
    # Nothing was lost, so nothing restarts; and what is lost from now on is seen.
    space.api.delete(space.path("Pod", "a-worker-1-g0"))
    status = job.wait_for_running(job.workers(0, 1))
    assert status["restarts"] == 1
    now = job.objects("Pod")
    assert [now[name]["metadata"]["uid"] for name in ("a-head", "a-worker-0-g0")] == [
        uids[name] for name in ("a-head", "a-worker-0-g0")
    ]


# --- Custom resources ----------------------------------------------------------------------------


def drop_rules(plane: Plane, name: str) -> None:
    """Makes the CRD one that takes anything, as an old or strange one might be."""
    crd = plane.api.get(f"{CRDS}/{name}")
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    for version in crd["spec"]["versions"]:
        version["subresources"].pop("scale")  # It has rules of its own.
        version["schema"] = {"openAPIV3Schema": schema}
    plane.api.put(f"{CRDS}/{name}", crd)


WRONG: dict[str, tuple[Object, str]] = {
    "no-worker": ({"worker": None}, "spec.worker"),
    "no-target": ({"worker": {"target": None}}, "spec.worker.target"),
    "text-target": ({"worker": {"target": "two"}}, "spec.worker.target"),
    "no-workers": ({"worker": {"target": 0}}, "spec.worker.target"),
    "small-max": ({"worker": {"max": 1}}, "spec.worker.max"),
    "no-container": (
        {"worker": {"template": {"spec": {"containers": []}}}},
        "spec.worker.template.spec.containers",
    ),
    "number-image": ({"worker": {"template": 7}}, "spec.worker.template"),
    "text-suspend": ({"suspend": "yes"}, "spec.suspend"),
    "text-limit": ({"restart": {"userError": {"limit": "many"}}}, "spec.restart.userError.limit"),
    "list-data": ({"data": {"name": "a"}}, "spec.data"),
    "own-gang": ({"gang": "Mine"}, "spec.gang"),
    "early-deadline": ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds"),
}


def merged(base: Any, patch: Any) -> Any:
    """As a merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def test_a_wrong_manifest_that_was_let_in_is_told_with_its_path(
    crds: Plane, space: Space, operator: OperatorProcess
) -> None:
    name = "corrojobs.training.corro.dev"
    drop_rules(crds, name)

    def takes_anything() -> bool:
        path = space.path("CorroJob")
        probe = corro_manifest("probe") | {"spec": {"worker": 7}}
        try:
            space.api.post(path, probe, dryRun="All")
        except ApiError:  # The old rules are still in force.
            return False
        return True

    wait_until(takes_anything, "the CRD without rules")
    jobs = {}
    for key, (change, _) in WRONG.items():
        jobs[key] = space.create(merged(corro_manifest(key), {"spec": change}))
    for key, job in jobs.items():
        told = job.wait_for_condition("Pending", "ValidationError")
        assert told["message"].startswith(WRONG[key][1]), f"{key}: {told}"
        assert job.status()["state"] == "Pending"
        assert not job.all_objects()
    # One is mended; the others stay as they are, and cost nothing.
    space.api.patch(jobs["no-target"].path, {"spec": {"worker": {"target": 1}}})
    jobs["no-target"].wait_for_running({"no-target-worker-0-g0"})
    quiet = QuietFor(3.0)
    wait_until(lambda: quiet.holds(operator.api_calls()), "no calls for 3 s")
    # kubectl would merge our schema into that one.
    crds.kubectl("delete", "crd", name)
    apply_crds(crds)


def test_the_mpi_operators_crd_in_place_of_ours_is_told_and_costs_little(
    crds: Plane, space: Space, operator: OperatorProcess
) -> None:
    crds.kubectl("delete", "crd", "mpijobs.kubeflow.org")
    crds.kubectl("apply", "-f", str(MANIFESTS / "mpi_operator_crd.yaml"))
    wait_until(lambda: is_established(crds, "mpijobs.kubeflow.org"), "their CRD being served")
    job = wait_until(lambda: space.create(mpi_manifest("m")), "a job of theirs")
    told = operator.wait_for("the status was not kept", seconds=90)
    assert told["job"] == f"MPIJob {space.name}/m"
    assert "crds.yaml" in told["why"]
    quiet = QuietFor(5.0)
    wait_until(lambda: quiet.holds(operator.api_calls()), "no calls for 5 s")
    # Ours over theirs, and the stored job runs.
    shown = crds.kubectl("apply", "-f", str(ROOT / "deploy" / "crds.yaml"))
    assert "mpijobs.kubeflow.org configured" in shown
    job.wait_for_running({"m-worker-0", "m-worker-1"})
    assert crds.api.get(f"{CRDS}/mpijobs.kubeflow.org")["spec"]["versions"]


def test_crds_that_come_after_the_operator_are_found(crds: Plane, namespace: str) -> None:
    space = Space(crds, namespace)
    crds.kubectl("delete", "crd", "corrojobs.training.corro.dev")
    with OperatorProcess(space.kubeconfig, space.name).begin() as operator:
        line = operator.wait_for("cannot watch")
        assert line["kind"] == "CorroJob"
        assert "crds.yaml" in line["advice"]
        wait_until(lambda: operator.page("/readyz")[0] == 200, "readiness")
        apply_crds(crds)
        start(space)
        operator.stop()
