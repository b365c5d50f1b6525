"""Fake nodes on a real plane: what tests of an operator rest on."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Plane, wait_until

Object = dict[str, Any]


def pods_path(namespace: str, name: str = "") -> str:
    path = f"/api/v1/namespaces/{namespace}/pods"
    return f"{path}/{name}" if name else path


def pod_spec(**extra: Any) -> Object:
    resources = {"limits": {"nvidia.com/gpu": 1, "cpu": "100m", "memory": "64Mi"}}
    container = {"name": "main", "image": "image", "resources": resources}
    return {"containers": [container], "restartPolicy": "Never"} | extra


def make_pod(plane: Plane, namespace: str, name: str, do: str = "", **extra: Any) -> None:
    annotations = {"fake.corro.dev/do": do} if do else {}
    meta = {"name": name, "annotations": annotations}
    plane.api.post(pods_path(namespace), {"metadata": meta, "spec": pod_spec(**extra)})


def command(plane: Plane, namespace: str, name: str, do: str) -> None:
    annotations = {"metadata": {"annotations": {"fake.corro.dev/do": do}}}
    plane.api.patch(pods_path(namespace, name), annotations)


def wait_for_phase(plane: Plane, namespace: str, name: str, phase: str) -> Object:
    def reached() -> Object | None:
        pod = plane.api.get(pods_path(namespace, name))
        return pod if pod["status"]["phase"] == phase else None

    return wait_until(reached, f"phase {phase} of {name}")


def is_gone(plane: Plane, namespace: str, name: str) -> bool:
    items = plane.api.get(pods_path(namespace))["items"]
    return all(pod["metadata"]["name"] != name for pod in items)


def test_nodes_have_room_and_gpus(plane: Plane) -> None:
    nodes = plane.api.get("/api/v1/nodes")["items"]
    assert len(nodes) == 4
    for node in nodes:
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
        assert node["status"]["allocatable"]["cpu"] == "64"
        assert not node["spec"].get("taints")


def test_a_pod_runs_with_an_address_of_its_own(plane: Plane, namespace: str) -> None:
    for name in ("a", "b"):
        make_pod(plane, namespace, name)
    pods = [wait_for_phase(plane, namespace, name, "Running") for name in ("a", "b")]
    assert len({pod["status"]["podIP"] for pod in pods}) == 2
    ready = [c for c in pods[0]["status"]["conditions"] if c["type"] == "Ready"]
    assert ready[0]["status"] == "True"


def test_a_pod_without_room_stays_pending_and_says_why(plane: Plane, namespace: str) -> None:
    greedy = pod_spec()["containers"][0] | {"resources": {"limits": {"nvidia.com/gpu": 9}}}
    make_pod(plane, namespace, "greedy", containers=[greedy])

    def reason() -> str:
        conditions = plane.api.get(pods_path(namespace, "greedy"))["status"].get("conditions", [])
        return "".join(c.get("message", "") for c in conditions if c["type"] == "PodScheduled")

    assert "Insufficient nvidia.com/gpu" in wait_until(reason, "the scheduler's words")


def test_a_pod_ends_as_it_is_told(plane: Plane, namespace: str) -> None:
    ends = {"fine": "exit=0", "wrong": "exit=42", "big": "oom", "moved": "evict"}
    for name in ends:
        make_pod(plane, namespace, name)
    for name, do in ends.items():
        wait_for_phase(plane, namespace, name, "Running")
        command(plane, namespace, name, do)
    wait_for_phase(plane, namespace, "fine", "Succeeded")
    failed = {n: wait_for_phase(plane, namespace, n, "Failed") for n in ("wrong", "big", "moved")}

    def end(name: str) -> Object:
        return failed[name]["status"]["containerStatuses"][0]["state"]["terminated"]

    assert end("wrong")["exitCode"] == 42
    assert end("big")["reason"] == "OOMKilled"
    assert failed["moved"]["status"]["reason"] == "Evicted"


def test_a_pod_that_never_starts_waits_for_its_image(plane: Plane, namespace: str) -> None:
    make_pod(plane, namespace, "imageless", do="never-start")

    def waiting() -> str:
        statuses = plane.api.get(pods_path(namespace, "imageless"))["status"]
        first = statuses.get("containerStatuses", [{}])[0]
        return first.get("state", {}).get("waiting", {}).get("reason", "")

    assert wait_until(waiting, "ErrImagePull") == "ErrImagePull"


def test_a_deleted_pod_goes_and_a_stuck_one_stays(plane: Plane, namespace: str) -> None:
    make_pod(plane, namespace, "leaves")
    make_pod(plane, namespace, "stays", do="stuck")
    for name in ("leaves", "stays"):
        wait_for_phase(plane, namespace, name, "Running")
        plane.api.delete(pods_path(namespace, name))
    wait_until(lambda: is_gone(plane, namespace, "leaves"), "the pod's end")
    stays = plane.api.get(pods_path(namespace, "stays"))
    assert stays["metadata"]["deletionTimestamp"]
    assert stays["status"]["phase"] == "Running"
    plane.api.delete(pods_path(namespace, "stays"), gracePeriodSeconds=0)
    wait_until(lambda: is_gone(plane, namespace, "stays"), "the stuck pod's end by force")


def test_a_batch_job_completes(plane: Plane, namespace: str) -> None:
    template = {
        "metadata": {"annotations": {"fake.corro.dev/do": "exit=0"}},
        "spec": pod_spec(),
    }
    body = {
        "metadata": {"name": "job"},
        "spec": {"completions": 3, "parallelism": 3, "template": template},
    }
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    plane.api.post(path, body)

    def complete() -> bool:
        conditions = plane.api.get(f"{path}/job")["status"].get("conditions", [])
        return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)

    wait_until(complete, "the Job's completion")


def test_a_batch_job_restarts_its_container_in_place(plane: Plane, namespace: str) -> None:
    template = {
        "metadata": {"annotations": {"fake.corro.dev/do": "exit=1"}},
        "spec": pod_spec(restartPolicy="OnFailure"),
    }
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    plane.api.post(path, {"metadata": {"name": "job"}, "spec": {"template": template}})

    def restarts() -> int:
        for pod in plane.api.get(pods_path(namespace))["items"]:
            for status in pod["status"].get("containerStatuses", []):
                return int(status["restartCount"])
        return 0

    assert wait_until(restarts, "a restart") == 1


def test_a_silent_node_is_unknown_and_its_pods_hang_until_it_is_back(
    plane: Plane, namespace: str
) -> None:
    at_once = [
        {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute"}
        | {"tolerationSeconds": 0}
        for why in ("unreachable", "not-ready")
    ]
    make_pod(plane, namespace, "pod", tolerations=at_once)
    node = wait_for_phase(plane, namespace, "pod", "Running")["spec"]["nodeName"]
    path = f"/api/v1/nodes/{node}"

    def ready() -> str:
        conditions = plane.api.get(path)["status"]["conditions"]
        return next(c["status"] for c in conditions if c["type"] == "Ready")

    plane.api.patch(path, {"metadata": {"annotations": {"fake.corro.dev/do": "silent"}}})
    try:
        wait_until(lambda: ready() == "Unknown", "the node's being Unknown", 90)
        deleted = wait_until(
            lambda: plane.api.get(pods_path(namespace, "pod"))["metadata"].get("deletionTimestamp"),
            "the eviction by taint",
        )
        assert deleted
        assert plane.api.get(pods_path(namespace, "pod"))["status"]["phase"] == "Running"
    finally:
        plane.api.patch(path, {"metadata": {"annotations": {"fake.corro.dev/do": None}}})
    wait_until(lambda: ready() == "True", "the node's return")
    wait_until(lambda: is_gone(plane, namespace, "pod"), "the pod's end")
    wait_until(lambda: not plane.api.get(path)["spec"].get("taints"), "the taint's end")


def test_a_gang_starts_together_or_not_at_all(plane: Plane, namespace: str) -> None:
    """The in-tree gang scheduler, for the operator's PodGroups: two of three pods wait."""
    groups = {g["name"]: g for g in plane.api.get("/apis")["groups"]}
    served = [v["version"] for v in groups["scheduling.k8s.io"]["versions"]]
    if "v1alpha2" not in served:
        pytest.skip("the plane was started without --gang")
    path = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{namespace}/podgroups"
    policy = {"gang": {"minCount": 3}}
    body = {"metadata": {"name": "gang"}, "spec": {"schedulingPolicy": policy}}
    plane.api.post(path, body)
    member = {"schedulingGroup": {"podGroupName": "gang"}}
    for name in ("a", "b"):
        make_pod(plane, namespace, name, **member)

    make_pod(plane, namespace, "later")  # When it has a node, the two before it had their turn.
    wait_for_phase(plane, namespace, "later", "Running")
    for name in ("a", "b"):
        assert "nodeName" not in plane.api.get(pods_path(namespace, name))["spec"]
    make_pod(plane, namespace, "c", **member)
    for name in ("a", "b", "c"):
        wait_for_phase(plane, namespace, name, "Running")
