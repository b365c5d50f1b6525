"""MPIJob's four versions and CorroJob on a real API server: what is stored, shown and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from api import APPLY
from harness import CRDS, MANIFESTS, Plane, apply_crds, is_established, wait_until

Object = dict[str, Any]
GROUP = "/apis/kubeflow.org"
VERSIONS = ["v1alpha1", "v1alpha2", "v1", "v2beta1"]
JOBS = sorted(p for p in MANIFESTS.glob("*.yaml") if p.name != "mpi_operator_crd.yaml")


def jobs_path(version: str, namespace: str, name: str = "") -> str:
    path = f"{GROUP}/{version}/namespaces/{namespace}/mpijobs"
    return f"{path}/{name}" if name else path


def first_of(version: str) -> Path:
    return next(p for p in JOBS if f"mpijob_{version}_" in p.name)


def read(manifest: Path) -> Object:
    return yaml.safe_load(manifest.read_text())


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(v) for key, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


def contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and contains(whole[key], value) for key, value in part.items()
        )
    if isinstance(part, list):
        return (
            isinstance(whole, list)
            and len(whole) == len(part)
            and all(contains(w, p) for w, p in zip(whole, part, strict=True))
        )
    return bool(whole == part)


def test_crds_are_taken_as_they_are(crds: Plane) -> None:
    """No condition that says the schema is not structural, or the names are taken."""
    for name in ("mpijobs.kubeflow.org", "corrojobs.training.corro.dev"):
        path = f"{CRDS}/{name}"
        conditions = crds.api.get(path)["status"]["conditions"]
        wrong = [
            c for c in conditions if (c["type"] == "NonStructuralSchema") == (c["status"] == "True")
        ]
        assert not wrong


# mpijob different: versions
@pytest.mark.parametrize("manifest", JOBS, ids=lambda path: path.stem)
def test_a_manifest_applies_unmodified_and_loses_nothing(
    crds: Plane, namespace: str, manifest: Path
) -> None:
    crds.kubectl("apply", "-n", namespace, "-f", str(manifest))
    wanted = read(manifest)
    resource = f"{wanted['kind'].lower()}s.{'.'.join(reversed(wanted['apiVersion'].split('/')))}"
    shown = crds.kubectl("get", "-n", namespace, resource, wanted["metadata"]["name"], "-o", "json")
    stored = json.loads(shown)
    assert stored["apiVersion"] == wanted["apiVersion"]
    assert contains(without_nulls(stored["spec"]), without_nulls(wanted["spec"]))
    crds.kubectl("apply", "-n", namespace, "-f", str(manifest))
    again = crds.kubectl("get", "-n", namespace, resource, stored["metadata"]["name"], "-o", "json")
    assert json.loads(again)["metadata"]["generation"] == 1


# mpijob different: versions
@pytest.mark.parametrize("written", VERSIONS)
def test_written_as_stays_through_every_other_version(
    crds: Plane, namespace: str, written: str
) -> None:
    job = read(first_of(written))
    name = job["metadata"]["name"]
    crds.api.post(jobs_path(written, namespace), job)
    wanted = without_nulls(job["spec"])
    for other in VERSIONS:
        path = jobs_path(other, namespace, name)
        seen = crds.api.get(path)
        assert seen["spec"]["writtenAs"] == written
        assert contains(without_nulls(seen["spec"]), wanted)
        seen["metadata"]["labels"] = {"touched-by": other}
        assert crds.api.put(path, seen)["spec"]["writtenAs"] == written
        patched = crds.api.patch(path, {"spec": {"slotsPerWorker": 4}})
        assert patched["spec"]["writtenAs"] == written
        wanted["slotsPerWorker"] = 4
        status = crds.api.patch(f"{path}/status", {"status": {"state": f"By{other}"}})
        assert status["spec"]["writtenAs"] == written
    assert crds.api.get(jobs_path(written, namespace, name))["status"]["state"] == "Byv2beta1"


@pytest.mark.parametrize("kept", VERSIONS)
def test_a_status_of_any_version_is_kept(crds: Plane, namespace: str, kept: str) -> None:
    job = read(first_of("v1alpha1"))
    name = job["metadata"]["name"]
    crds.api.post(jobs_path("v1alpha1", namespace), job)
    at = "2026-01-01T00:00:00Z"
    condition = {"type": "Running", "status": "True", "reason": "MPIJobRunning", "message": "m"}
    status = {
        "launcherStatus": "Active",
        "workerReplicas": 2,
        "startTime": at,
        "conditions": [condition | {"lastUpdateTime": at, "lastTransitionTime": at}],
        "replicaStatuses": {"Worker": {"active": 2}},
        "members": {"worker-1": {"generation": 1, "failures": 1, "notBefore": at}},
    }
    path = jobs_path(kept, namespace, name)
    crds.api.patch(f"{path}/status", {"status": status})
    for other in VERSIONS:
        assert crds.api.get(jobs_path(other, namespace, name))["status"] == status


@pytest.mark.parametrize("written", VERSIONS)
def test_server_side_apply_crosses_versions(crds: Plane, namespace: str, written: str) -> None:
    """A user applies one version, the operator its status through another, and both do so again."""
    manifest = first_of(written)
    name = read(manifest)["metadata"]["name"]
    path = jobs_path("v2beta1", namespace, name)
    head = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name}}
    for ready in (1, 2):
        crds.kubectl("apply", "--server-side", "-n", namespace, "-f", str(manifest))
        status = {"status": {"ready": ready, "state": "Pending"}}
        job = crds.api.patch(f"{path}/status", head | status, APPLY, fieldManager="corro-operator")
        assert job["status"] == status["status"]
        assert job["spec"]["writtenAs"] == written
        assert job["metadata"]["generation"] == 1


# mpijob different: columns
def test_columns_and_short_names(crds: Plane, namespace: str) -> None:
    columns = ["NAME", "STATE", "READY", "DESIRED", "RESTARTS", "AGE"]
    for manifest, resource, names in (
        (first_of("v1alpha2"), "mpijobs.v1alpha2.kubeflow.org", ["mj", "mpij", "mpijob"]),
        (MANIFESTS / "corrojob.yaml", "corrojobs", ["corro", "corrojob"]),
    ):
        name = read(manifest)["metadata"]["name"]
        crds.kubectl("apply", "-n", namespace, "-f", str(manifest))
        status = {"status": {"state": "Running", "ready": 1, "desired": 2, "restarts": 3}}
        crds.kubectl(
            *("patch", "-n", namespace, resource, name, "--subresource=status"),
            *("--type=merge", "-p", json.dumps(status)),
        )
        for short in names:
            shown = crds.kubectl("get", "-n", namespace, short).splitlines()
            assert shown[0].split() == columns
            assert shown[1].split()[:5] == [name, "Running", "1", "2", "3"]


# mpijob different: scale
def test_kubectl_scales_both_kinds(crds: Plane, namespace: str) -> None:
    for file, resource, where in (
        ("mpijob_v1_elastic.yaml", "mpijob", ".spec.mpiReplicaSpecs.Worker.replicas"),
        ("mpijob_v1alpha1_replicas.yaml", "mpijobs.v1alpha1.kubeflow.org", ".spec.replicas"),
        ("corrojob.yaml", "corrojob", ".spec.worker.target"),
    ):
        name = read(MANIFESTS / file)["metadata"]["name"]
        crds.kubectl("apply", "-n", namespace, "-f", str(MANIFESTS / file))
        crds.kubectl("scale", "-n", namespace, resource, name, "--replicas=3")
        at = f"jsonpath={{{where}}}"
        assert crds.kubectl("get", "-n", namespace, resource, name, "-o", at) == "3"


# mpijob same: status.subresource
def test_status_is_apart_from_spec(crds: Plane, namespace: str) -> None:
    job = read(first_of("v2beta1"))
    path = jobs_path("v2beta1", namespace, job["metadata"]["name"])
    crds.api.post(jobs_path("v2beta1", namespace), job | {"status": {"state": "Failed"}})
    before = crds.api.get(path)
    assert "status" not in before
    crds.api.patch(
        f"{path}/status", {"status": {"state": "Pending"}, "spec": {"slotsPerWorker": 9}}
    )
    after = crds.api.get(path)
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


def test_a_stored_bad_job_can_still_be_touched(crds: Plane, namespace: str) -> None:
    """Rules hold for what changes; labels of a job from before the rules can still be set."""
    apply_their_crd(crds)
    job = read(MANIFESTS / "mpijob_v2beta1_intel.yaml")
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["replicas"] = 5
    job["spec"]["launcherCreationPolicy"] = "Whatever"
    path = jobs_path("v2beta1", namespace, job["metadata"]["name"])
    crds.api.post(jobs_path("v2beta1", namespace), job)
    apply_crds(crds, "configured")
    wait_for_version(crds, "v1")
    crds.api.patch(path, {"metadata": {"labels": {"team": "a"}}})
    crds.api.patch(f"{path}/status", {"status": {"state": "Created"}})
    assert crds.api.get(path)["spec"]["mpiReplicaSpecs"]["Launcher"]["replicas"] == 5


# mpijob different: stored-jobs
def test_crds_apply_over_the_mpi_operators_with_stored_jobs(crds: Plane, namespace: str) -> None:
    apply_their_crd(crds)
    job = read(MANIFESTS / "mpijob_v2beta1_gang.yaml")
    job["spec"].pop("launcherCreationPolicy")
    job["spec"]["runPolicy"].pop("schedulingPolicy")
    name = job["metadata"]["name"]
    path = jobs_path("v2beta1", namespace, name)
    before = crds.api.post(jobs_path("v2beta1", namespace), job)
    assert before["spec"]["sshAuthMountPath"] == "/root/.ssh"
    condition = {"type": "Created", "status": "True", "reason": "MPIJobCreated"}
    status = {"conditions": [condition], "replicaStatuses": {"Launcher": {"active": 1}}}
    crds.api.patch(f"{path}/status", {"status": status})

    apply_crds(crds, "mpijobs.kubeflow.org configured")
    wait_for_version(crds, "v1")
    for version in VERSIONS:
        seen = crds.api.get(jobs_path(version, namespace, name))
        assert seen["metadata"]["uid"] == before["metadata"]["uid"]
        assert seen["spec"] == before["spec"] | {"writtenAs": "v2beta1"}
        assert seen["status"] == status
    patched = crds.api.patch(jobs_path("v1", namespace, name), {"spec": {"slotsPerWorker": 2}})
    assert patched["spec"]["writtenAs"] == "v2beta1"
    conversion = crds.api.get(f"{CRDS}/mpijobs.kubeflow.org")
    assert conversion["status"]["storedVersions"] == ["v2beta1"]


def apply_their_crd(plane: Plane) -> None:
    plane.kubectl("delete", "crd", "mpijobs.kubeflow.org", "--ignore-not-found", "--wait")
    # `create` as their page says: their real CRD is too large for `apply`.
    plane.kubectl("create", "-f", str(MANIFESTS / "mpi_operator_crd.yaml"))
    wait_until(lambda: is_established(plane, "mpijobs.kubeflow.org"), "their CRD being served")
    wait_until(lambda: "v1" not in served(plane), "the end of ours")
    wait_for_version(plane, "v2beta1")


def served(plane: Plane) -> list[str]:
    groups = plane.api.get("/apis")["groups"]
    ours = [g for g in groups if g["name"] == "kubeflow.org"]
    return [v["version"] for g in ours for v in g["versions"]]


def wait_for_version(plane: Plane, version: str) -> None:
    """An Established CRD is served a moment later."""
    wait_until(lambda: plane.api.get(f"{GROUP}/{version}/mpijobs"), f"{version} being served")
