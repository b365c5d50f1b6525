"""Jobs that train on a real node: the user's MPIJob, and a CorroJob."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml
from harness import MANIFESTS, Plane
from jobs import Space

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
VERSION = (ROOT / "python/corro/VERSION").read_text().strip()
IMAGE = f"corro-python:{VERSION}"
# In the image, which has no TensorFlow: examples/numpy_mnist.py.
SCRIPT = "/examples/tensorflow_mnist.py"
# Much longer than whatever happens to it meanwhile. An epoch is about a second.
LONG = ("--epochs", "2000")
USERS_JOB: Object = yaml.safe_load((MANIFESTS / "mpijob_v1alpha2_horovod.yaml").read_text())
# What a test's node has to have free for each container; the limits stay as they are.
REQUESTS = {"cpu": "50m", "memory": "64Mi"}


def users_job(*more: str, grace: int = 30) -> Object:
    """The MPIJob of a Horovod user as it is, but for its image, and requests that fit this node.

    `more`: what its script is told beside.
    """
    manifest = copy.deepcopy(USERS_JOB)
    for role in manifest["spec"]["mpiReplicaSpecs"].values():
        [container] = role["template"]["spec"]["containers"]
        container["image"] = IMAGE
        container["resources"]["requests"] = REQUESTS
        if grace != 30:
            role["template"]["spec"]["terminationGracePeriodSeconds"] = grace
    launcher(manifest)["args"] += more
    return manifest


def bring_tensorflow(manifest: Object, packages: Path) -> None:
    """Mounts TensorFlow, which the image lacks, and the script that the manifest means."""
    folders = {"packages": packages, "script": ROOT / "examples" / Path(SCRIPT).name}
    for role in manifest["spec"]["mpiReplicaSpecs"].values():
        pod = role["template"]["spec"]
        pod["volumes"] = [
            {"name": name, "hostPath": {"path": str(path)}} for name, path in folders.items()
        ]
        pod["containers"][0] |= {
            "env": [{"name": "PYTHONPATH", "value": "/packages"}],
            "volumeMounts": [
                {"name": "packages", "mountPath": "/packages", "readOnly": True},
                {"name": "script", "mountPath": SCRIPT, "readOnly": True},
            ],
        }


def launcher(manifest: Object) -> Object:
    """Its container."""
    pod = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    container: Object = pod["containers"][0]
    return container


def corro_job(name: str, *more: str, memory: str = "1Gi", **spec: Any) -> Object:
    """A CorroJob of two workers that trains the same."""
    container = {
        "name": "train",
        "image": IMAGE,
        "command": ["python", SCRIPT, *more],
        "resources": {"requests": REQUESTS, "limits": {"memory": memory}},
    }
    pod = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 10}}
    at_once = {"backoffSeconds": 0, "maxBackoffSeconds": 0}
    once = {"limit": 1} | at_once
    return {
        "apiVersion": "training.corro.dev/v1",
        "kind": "CorroJob",
        "metadata": {"name": name},
        "spec": {
            "worker": {"target": 2, "template": pod},
            "restart": {"lostPod": at_once, "userError": once, "outOfMemory": once},
        }
        | spec,
    }


def make_volume(plane: Plane, space: Space, folder: Path, claim: str) -> None:
    """A claim in the namespace, bound to this folder of the node."""
    name = f"{space.name}-{claim}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    size = {"storage": "1Gi"}
    volume = {
        "metadata": {"name": name},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": str(folder)},
            "claimRef": {"namespace": space.name, "name": claim},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }
    spec = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": size},
        "volumeName": name,
        "storageClassName": "",
    }
    plane.api.post("/api/v1/persistentvolumes", volume)
    claims = f"/api/v1/namespaces/{space.name}/persistentvolumeclaims"
    plane.api.post(claims, {"metadata": {"name": claim}, "spec": spec})
