"""The MPIJob of a user of elastic Horovod on a real node: its manifest, with another script."""

from __future__ import annotations

import copy
import re
import time
from typing import Any

import yaml
from harness import MANIFESTS
from jobs import Job, Space
from node_jobs import IMAGE, REQUESTS
from pods_seen import launcher_of, log, measured, wait_for_line
from test_node_elastic import EPOCHS, SCRIPT, add_script, wait_for_size

Object = dict[str, Any]
USERS_JOB: Object = yaml.safe_load((MANIFESTS / "mpijob_v1_elastic.yaml").read_text())


def create(space: Space) -> tuple[Job, str]:
    """The job, and its launcher's pod."""
    add_script(space)
    manifest = copy.deepcopy(USERS_JOB)
    for role in manifest["spec"]["mpiReplicaSpecs"].values():
        pod = role["template"]["spec"]
        pod["volumes"] = [{"name": "script", "configMap": {"name": "script"}}]
        [container] = pod["containers"]
        container["image"] = IMAGE
        container["resources"] = {"requests": REQUESTS}
        container["volumeMounts"] = [{"name": "script", "mountPath": "/examples/script"}]
    words = container_of(manifest, "Launcher")["args"]
    words[-1:] = [SCRIPT, str(EPOCHS)]
    job = space.create(manifest)
    return job, launcher_of(job)


def container_of(manifest: Object, role: str) -> Object:
    [container] = manifest["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]["containers"]
    found: Object = container
    return found


def test_it_goes_on_while_workers_come_and_go(space: Space) -> None:
    job, launcher = create(space)
    wait_for_size(space, launcher, 2, 0)
    [before] = job.pods("launcher")[launcher]["status"]["containerStatuses"]
    begun = time.time()
    worker = f"{job.name}-worker-1"
    space.api.delete(space.path("Pod", worker), {"gracePeriodSeconds": 0})
    taken = wait_for_size(space, launcher, 1, begun) - begun
    measured("elastic horovodrun: pod killed -> the other steps", taken)
    wait_for_size(space, launcher, 2, begun)
    begun = time.time()
    job.patch({"mpiReplicaSpecs": {"Worker": {"replicas": 3}}})
    taken = wait_for_size(space, launcher, 3, begun) - begun
    measured("elastic horovodrun: replicas 3 -> three ranks step", taken)
    [after] = job.pods("launcher")[launcher]["status"]["containerStatuses"]
    assert after["containerID"] == before["containerID"]
    wait_for_line(space, launcher, r"samples \d+")
    last = [line.text for line in log(space, launcher) if "samples" in line.text]
    found = re.search(r"samples (\d+) epochs (\d+) accuracy (\S+)", last[-1])
    assert found
    assert int(found[1]) == EPOCHS * 60_000, "each sample once in each epoch"
    job.wait_for_state("Succeeded")
