"""Manifests with a wrong field: refused at admission, with the field's path."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from api import ApiError
from harness import MANIFESTS, Plane

Object = dict[str, Any]
DELETE = object()

GPUS = "mpijob_v1alpha1_gpus"
REPLICAS = "mpijob_v1alpha1_replicas"
ALPHA2 = "mpijob_v1alpha2_horovod"
V1 = "mpijob_v1_elastic"
GANG = "mpijob_v2beta1_gang"
INTEL = "mpijob_v2beta1_intel"
CORRO = "corrojob"

POLICY = "spec.runPolicy"
TEMPLATE = "spec.worker.template"
SCHEDULING = f"{POLICY}.schedulingPolicy"
ROLES = "spec.mpiReplicaSpecs"
LAUNCHER, WORKER = f"{ROLES}.Launcher", f"{ROLES}.Worker"
LONG = "a" * 54

# Manifest; field; its wrong value; where the message has another path: that one.
WRONG: list[tuple[str, str, Any] | tuple[str, str, Any, str]] = [
    # v1alpha1
    (GPUS, "spec.gpus", 3),
    (GPUS, "spec.gpus", 0),
    (GPUS, "spec.gpus", -8),
    (GPUS, "spec.gpus", "many"),
    (GPUS, "spec.gpus", 12),
    (GPUS, "spec.gpusPerNode", 0),
    (GPUS, "spec.gpusPerNode", 3, "spec.gpus"),
    (GPUS, "spec.replicas", 2),
    (GPUS, "spec.processingUnits", 8, "spec.replicas"),
    (GPUS, "spec.gpus", DELETE, "spec.replicas"),
    (GPUS, "spec.template", DELETE),
    (GPUS, "spec.template.spec.containers", []),
    (GPUS, "spec.template.spec.containers.0.name", DELETE, "spec.template.spec.containers[0].name"),
    (GPUS, "spec.processingResourceType", "amd.com/gpu"),
    (GPUS, "spec.backoffLimit", -1),
    (GPUS, "spec.mpiReplicaSpecs", {}),
    (GPUS, "spec.runPolicy", {}),
    (GPUS, "spec.cleanPodPolicy", "None"),
    (REPLICAS, "spec.replicas", 0),
    (REPLICAS, "spec.slotsPerWorker", 0),
    (REPLICAS, "spec.launcherOnMaster", "yes"),
    (REPLICAS, "spec.activeDeadlineSeconds", -1),
    # v1alpha2
    (ALPHA2, "spec.slotsPerWorker", 0),
    (ALPHA2, "spec.cleanPodPolicy", "Sometimes"),
    (ALPHA2, "spec.mpiDistribution", "Intel"),
    (ALPHA2, "spec.mpiImplementation", "Intel"),
    (ALPHA2, "spec.replicas", 2),
    (ALPHA2, "spec.mpiReplicaSpecs", DELETE),
    (ALPHA2, LAUNCHER, DELETE),
    (ALPHA2, f"{LAUNCHER}.replicas", 2),
    (ALPHA2, f"{WORKER}.replicas", 0),
    (ALPHA2, f"{WORKER}.template", DELETE),
    (ALPHA2, f"{WORKER}.restartPolicy", "Sometimes"),
    (ALPHA2, "spec.slots", 2),
    # v1
    (V1, "spec.backoffLimit", 3),
    (V1, "spec.activeDeadlineSeconds", 60),
    (V1, "spec.mpiDistribution", "OpenMPI"),
    (V1, "spec.sshAuthMountPath", "/root/.ssh"),
    (V1, "spec.launcherCreationPolicy", "AtStartup"),
    (V1, "spec.runLauncherAsWorker", True),
    (V1, f"{SCHEDULING}.minAvailable", -1),
    (V1, f"{POLICY}.ttlSecondsAfterFinished", -1),
    (V1, f"{WORKER}.replicas", -2),
    # v2beta1; the first six were accepted by the MPI Operator's CRD.
    (GANG, "spec.launcherCreationPolicy", "Whatever"),
    (GANG, f"{POLICY}.cleanPodPolicy", "Bogus"),
    (GANG, f"{POLICY}.backoffLimit", -4),
    (GANG, f"{LAUNCHER}.replicas", 5),
    (
        GANG,
        f"{ROLES}.Foo",
        {"replicas": -2, "template": {"spec": {"containers": [{"name": "a"}]}}},
    ),
    (GANG, f"{POLICY}.managedBy", "somebody"),
    (INTEL, f"{WORKER}.replicas", DELETE),
    (INTEL, f"{WORKER}.replicas", 0),
    (GANG, f"{WORKER}.restartPolicy", "ExitCode"),
    (GANG, f"{LAUNCHER}.restartPolicy", "Always"),
    (GANG, f"{LAUNCHER}.template.spec.containers", DELETE),
    (GANG, "spec.mpiImplementation", "MVAPICH"),
    (GANG, "spec.slotsPerWorker", -1),
    (GANG, "spec.slotsPerWorker", 2**31),
    (GANG, "spec.cleanPodPolicy", "All"),
    (GANG, "spec.mainContainer", "launcher"),
    (GANG, "spec.gpus", 8),
    (GANG, "spec.template", {"spec": {"containers": [{"name": "a"}]}}),
    (GANG, f"{POLICY}.activeDeadlineSeconds", -1),
    (GANG, f"{POLICY}.suspend", "no"),
    (GANG, f"{SCHEDULING}.scheduleTimeoutSeconds", -1),
    (GANG, f"{SCHEDULING}.minResources", 3),
    (GANG, "spec.writtenAs", "v3"),
    (INTEL, "spec.sshAuthMountPath", ""),
    (INTEL, "spec.sshAuthMountPath", "/a:/b"),
    (INTEL, "metadata.name", LONG + "a"),
    (INTEL, "metadata.name", "1job"),
    (INTEL, "metadata.name", "dotted.name"),
    (GANG, "spec.elasticPolicy", {"minReplicas": 1}),
    (GANG, "spec", DELETE),
    # CorroJob
    (CORRO, "spec.worker", DELETE),
    (CORRO, "spec.worker.target", DELETE),
    (CORRO, "spec.worker.target", 0),
    (CORRO, "spec.worker.target", 10001),
    (CORRO, "spec.worker.min", 3),
    (CORRO, "spec.worker.max", 1),
    (CORRO, "spec.worker.max", DELETE),
    (CORRO, "spec.worker.slots", 1025),
    (CORRO, "spec.worker.template.spec.restartPolicy", "Always"),
    (CORRO, "spec.worker.template.spec.containers", []),
    (CORRO, "spec.worker.template.spec.hostNetwork", "yes"),
    (
        CORRO,
        "spec.worker.template.spec.containers.0.command",
        "python train.py",
        "spec.worker.template.spec.containers[0].command",
    ),
    (CORRO, "spec.server", {}),
    (CORRO, "spec.coordinator", {"replicas": 1}),
    (CORRO, "spec.data.0.claim", DELETE, "spec.data[0].claim"),
    (CORRO, "spec.data.0.claim", "Not_A_Name", "spec.data[0].claim"),
    (CORRO, "spec.data.0.mountPath", "data", "spec.data[0].mountPath"),
    (CORRO, "spec.data.0.mountPath", "/a:b", "spec.data[0].mountPath"),
    (CORRO, "spec.data.0.name", "n" * 41, "spec.data[0].name"),
    (CORRO, "spec.data", [{"claim": "a", "mountPath": "/a"}] * 2),
    (CORRO, "spec.data", [{"claim": "a", "mountPath": f"/{n}", "name": "a"} for n in "ab"]),
    (CORRO, "spec.data", [{"claim": "a", "mountPath": f"/{n}"} for n in range(17)]),
    (CORRO, "spec.checkpoint.claim", DELETE),
    (CORRO, "spec.checkpoint.mountPath", "here"),
    (CORRO, "spec.queue", "q" * 64),
    (CORRO, "spec.queue", "no spaces"),
    (CORRO, "spec.gang", "Maybe"),
    (CORRO, "spec.restart.userError.limit", -1),
    (CORRO, "spec.restart.lostPod.backoffSeconds", 3601),
    (CORRO, "spec.restart.lostPod.backoffSeconds", 61),
    (CORRO, "spec.restart.resetAfterSeconds", 0),
    (CORRO, "spec.activeDeadlineSeconds", 0),
    (CORRO, "spec.ttlSecondsAfterFinished", -1),
    (CORRO, "spec.managedBy", "kubeflow.org/mpi-operator"),
    (CORRO, "spec.suspend", "true"),
    (CORRO, "spec.workers", 3),
    (CORRO, "metadata.name", LONG + "a"),
]


def load(name: str) -> Object:
    return yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text())


def with_field(manifest: Object, field: str, value: Any) -> Object:
    changed = copy.deepcopy(manifest)
    place: Any = changed
    *path, last = field.split(".")
    for key in path:
        place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
    if value is DELETE:
        del place[last]
    else:
        place[last] = value
    return changed


def path_of(manifest: Object, namespace: str) -> str:
    return f"/apis/{manifest['apiVersion']}/namespaces/{namespace}/{manifest['kind'].lower()}s"


def refusal(plane: Plane, manifest: Object, name: str = "") -> str:
    """What the API server says to the manifest, as kubectl sends it: unknown fields are errors."""
    path = path_of(manifest, "default")
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    send = plane.api.put if name else plane.api.post
    with pytest.raises(ApiError) as error:
        send(f"{path}/{name}" if name else path, manifest, **query)
    assert error.value.code in (400, 422)
    return error.value.message


def title(row: tuple[Any, ...]) -> str:
    value = "missing" if row[2] is DELETE else str(row[2])[:20]
    return f"{row[0]}-{row[1]}={value}"


# mpijob same: v1alpha1.gpus; v1alpha2.slotsPerWorker; v1alpha2.mpiReplicaSpecs
# mpijob same: v1alpha2.mpiDistribution; v1.fields; v2.mpiReplicaSpecs; v2.replicas
# mpijob same: v2.restartPolicy; v2.template; v2.slotsPerWorker; v2.mpiImplementation
# mpijob same: v2.sshAuthMountPath; v2.cleanPodPolicy; v2.managedBy; elasticPolicy; name-length
# mpijob same: case.validation; case.validation-name
# mpijob different: v1alpha1.notMultiple; v2.launcherCreationPolicy-enum; admission
# mpijob different: name-length-where
@pytest.mark.parametrize("row", WRONG, ids=title)
def test_a_wrong_field_is_refused_with_its_path(crds: Plane, row: tuple[Any, ...]) -> None:
    manifest = with_field(load(row[0]), row[1], row[2])
    path = row[3] if len(row) > 3 else row[1]
    assert path in refusal(crds, manifest)


# mpijob different: v2.no-workers
@pytest.mark.parametrize("replicas", [0, DELETE])
def test_a_launcher_that_is_a_host_needs_no_workers(crds: Plane, replicas: Any) -> None:
    manifest = with_field(load(INTEL), f"{WORKER}.replicas", replicas)
    assert f"{WORKER}.replicas" in refusal(crds, manifest)
    manifest = with_field(manifest, "spec.runLauncherAsWorker", True)
    crds.api.post(path_of(manifest, "default"), manifest, dryRun="All", fieldValidation="Strict")


def test_the_table_has_sixty_rows() -> None:
    assert len(WRONG) >= 60


def test_the_longest_names_are_taken(crds: Plane) -> None:
    for name in (INTEL, CORRO, GPUS):
        manifest = with_field(load(name), "metadata.name", LONG)
        crds.api.post(
            path_of(manifest, "default"), manifest, dryRun="All", fieldValidation="Strict"
        )


@pytest.mark.parametrize(
    ("name", "field"),
    [(GANG, f"{WORKER}.replicas"), (REPLICAS, "spec.replicas"), (CORRO, "spec.worker.max")],
)
def test_a_name_is_too_long_for_the_last_worker(crds: Plane, name: str, field: str) -> None:
    manifest = with_field(with_field(load(name), "metadata.name", LONG), field, 11)
    assert "metadata.name" in refusal(crds, manifest)


# Manifest; field; what it is when made; what it may not become.
FIXED: list[tuple[str, str, Any, Any]] = [
    (GANG, "spec.writtenAs", "v2beta1", "v1"),
    (GANG, f"{POLICY}.managedBy", "kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue"),
    (GANG, f"{POLICY}.managedBy", "kubeflow.org/mpi-operator", DELETE),
    (V1, f"{POLICY}.managedBy", DELETE, "kubeflow.org/mpi-operator"),
    (CORRO, "spec.worker.min", 1, 2),
    (CORRO, "spec.worker.min", DELETE, 2),
    (CORRO, "spec.worker.max", 4, 5),
    (CORRO, "spec.worker.max", 4, DELETE),
    (CORRO, "spec.worker.slots", 2, 4),
    (CORRO, "spec.data", [{"claim": "a", "mountPath": "/a"}], [{"claim": "b", "mountPath": "/a"}]),
    (CORRO, "spec.data", [{"claim": "a", "mountPath": "/a"}], DELETE),
    (CORRO, "spec.checkpoint", {"claim": "a"}, {"claim": "b"}),
    (CORRO, "spec.gang", "Auto", "Off"),
    (CORRO, "spec.managedBy", DELETE, "kueue.x-k8s.io/multikueue"),
    (CORRO, "spec.queue", "a", "b"),
    (CORRO, "spec.queue", "a", DELETE),
    (CORRO, "spec.priorityClass", DELETE, "high"),
    (CORRO, "spec.worker.template.spec.nodeSelector", DELETE, {"a": "b"}),
    # One field instead of another: to CEL the same if the schema knew neither.
    (
        CORRO,
        "spec.worker.template.spec",
        {"containers": [{"name": "a"}], "nodeSelector": {"a": "b"}},
        {"containers": [{"name": "a"}], "tolerations": [{"operator": "Exists"}]},
    ),
    (CORRO, "spec.worker.template.spec.containers.0.image", "a", "b"),
]


def without_error(manifest: Object, field: str, value: Any) -> Object:
    try:
        return with_field(manifest, field, value)
    except KeyError:  # Nothing to delete.
        return manifest


# mpijob different: v2.managedBy-fixed
@pytest.mark.parametrize("row", FIXED, ids=title)
def test_a_fixed_field_cannot_change(crds: Plane, row: tuple[str, str, Any, Any]) -> None:
    name, field, first, then = row
    manifest = without_error(load(name), field, first)
    manifest["metadata"]["name"] = "fixed"
    path = path_of(manifest, "default")
    made = crds.api.post(path, manifest)
    try:
        message = refusal(crds, without_error(made, field, then), "fixed")
        assert (TEMPLATE if field.startswith(TEMPLATE) else field) in message
    finally:
        crds.api.delete(f"{path}/fixed")


def test_a_suspended_corrojob_may_change_its_template(crds: Plane) -> None:
    manifest = with_field(load(CORRO), "spec.suspend", True)
    path = path_of(manifest, "default")
    made = crds.api.post(path, manifest)
    try:
        image = "spec.worker.template.spec.containers.0.image"
        changed = with_field(with_field(made, image, "other"), "spec.queue", "team-b")
        resumed_at_once = with_field(changed, "spec.suspend", False)
        name = made["metadata"]["name"]
        assert "spec.worker.template" in refusal(crds, resumed_at_once, name)
        changed = crds.api.put(f"{path}/{name}", changed)
        crds.api.put(f"{path}/{name}", with_field(changed, "spec.suspend", False))
    finally:
        crds.api.delete(f"{path}/{made['metadata']['name']}")


def test_defaults_are_the_design_pages(crds: Plane) -> None:
    template = {"spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"worker": {"target": 1, "template": template}, "checkpoint": {"claim": "c"}}
    manifest = load(CORRO) | {"spec": spec}
    stored = crds.api.post(path_of(manifest, "default"), manifest, dryRun="All")["spec"]
    assert stored["restart"] == {
        "userError": {"limit": 3, "backoffSeconds": 10, "maxBackoffSeconds": 300},
        "lostPod": {"limit": 1000, "backoffSeconds": 1, "maxBackoffSeconds": 60},
        "outOfMemory": {"limit": 1, "backoffSeconds": 10, "maxBackoffSeconds": 300},
        "resetAfterSeconds": 600,
    }
    assert (stored["gang"], stored["suspend"], stored["worker"]["slots"]) == ("Auto", False, 1)
    assert stored["checkpoint"]["mountPath"] == "/checkpoint"


# mpijob different: v2.sshAuthMountPath-default
def test_an_mpijobs_only_default_is_written_as(crds: Plane) -> None:
    for name in (GPUS, ALPHA2, V1, INTEL):
        manifest = load(name)
        stored = crds.api.post(path_of(manifest, "default"), manifest, dryRun="All")["spec"]
        version = manifest["apiVersion"].partition("/")[2]
        assert set(stored) == set(manifest["spec"]) | {"writtenAs"}
        assert stored["writtenAs"] == version
