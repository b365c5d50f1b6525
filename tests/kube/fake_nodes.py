"""Fake nodes: the kubelet's side of the API, without a container.

    fake_nodes.py FOLDER --nodes 4 --cpu 64 --memory 256Gi --gpus 8

FOLDER is a plane of up.sh. The pods' side, and the commands that tests give by annotations, are in
pod_life.py. A node obeys one: `kubectl annotate node fake-0 fake.corro.dev/do=silent`. Its Lease is
then not renewed and its pods are left as they are, deleted ones too, until the annotation goes.

The story: one thread lists and watches the pods that have a node, one the nodes; one renews Leases.
Whatever the watches bring replaces the pod in a table; a pool of workers takes names from a queue,
looks at the newest state, asks pod_life what comes next, and does it. So a late worker, a cut
watch, or a restart of this program changes nothing but the time: the next step depends
on the pod's status alone (and on the commands done).
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from api import STRATEGIC, Api, ApiError, follow
from pod_life import PREFIX, Step, annotation, next_step

Object = dict[str, Any]
WORKERS = 8
LEASE_SECONDS = 3.0
NEVER = float("inf")


def now_text(fraction: bool = False) -> str:
    now = datetime.now(timezone.utc)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if fraction else "%Y-%m-%dT%H:%M:%SZ")


def version(object_: Object | None) -> int:
    """How new an object is: resourceVersions of one kind are numbers that grow."""
    return int(object_["metadata"]["resourceVersion"]) if object_ else 0


class DelayedQueue:
    """Keys that are due at a time; a key that is there twice comes out once, at the earlier time.

    A key that was taken comes out again only after `finish`: no two workers have the same pod.
    """

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._heap: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        self._taken: dict[str, float] = {}  # And when it is due again.
        self._order = itertools.count()

    def put(self, key: str, delay: float = 0.0) -> None:
        with self._ready:
            due = time.monotonic() + delay
            if key in self._taken:
                self._taken[key] = min(due, self._taken[key])
            elif due < self._due.get(key, NEVER):
                self._due[key] = due
                heapq.heappush(self._heap, (due, next(self._order), key))
                self._ready.notify()

    def finish(self, key: str) -> None:
        with self._ready:
            due = self._taken.pop(key)
        if due < NEVER:
            self.put(key, due - time.monotonic())

    def take(self) -> str:
        with self._ready:
            while True:
                if not self._heap:
                    self._ready.wait()
                    continue
                due, _, key = self._heap[0]
                if self._due.get(key) != due:  # Brought forward since.
                    heapq.heappop(self._heap)
                elif (rest := due - time.monotonic()) > 0:
                    self._ready.wait(rest)
                else:
                    heapq.heappop(self._heap)
                    del self._due[key]
                    self._taken[key] = NEVER
                    return key


class FakeNodes:
    """All nodes of a plane. `run` returns only when the API server is gone for a minute."""

    def __init__(self, api: Api, names: list[str], capacity: dict[str, str]) -> None:
        self._api = api
        self._names = names
        self._capacity = capacity
        self._lock = threading.Lock()
        self._pods: dict[str, Object] = {}
        self._silent: set[str] = set()
        self._not_ready: set[str] = set(names)
        self._done: dict[str, str] = {}  # The last command obeyed, by the pod's uid.
        self._begun: dict[str, tuple[str, float]] = {}  # What is put off, and until when, by uid.
        self._addresses = itertools.count(2)
        self._queue = DelayedQueue()

    def run(self) -> None:
        for number, name in enumerate(self._names):
            self._create_node(number, name)
        loops: list[Callable[[], None]] = [self._follow_pods, self._follow_nodes]
        for loop in [*loops, *[self._work] * WORKERS]:
            threading.Thread(target=loop, daemon=True).start()
        self._renew_leases()

    def _follow_pods(self) -> None:
        query = {"fieldSelector": "spec.nodeName!="}
        follow(self._api, "/api/v1/pods", self._on_pod, "fake nodes", **query)

    def _follow_nodes(self) -> None:
        query = {"labelSelector": PREFIX + "node"}
        follow(self._api, "/api/v1/nodes", self._on_node, "fake nodes", **query)

    # --- Nodes -----------------------------------------------------------------------------------

    def _create_node(self, number: int, name: str) -> None:
        labels = {
            PREFIX + "node": "",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": f"zone-{number % 2}",
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        lease = {"metadata": {"name": name}, "spec": self._lease_spec(name)}
        for path, body in (("/api/v1/nodes", node), (self._lease_path(), lease)):
            with contextlib.suppress(ApiError):  # There already: this is a restart.
                self._api.post(path, body)

    def _node_status(self, name: str) -> Object:
        times = {"lastHeartbeatTime": now_text(), "lastTransitionTime": now_text()}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake"}
        pressures = [
            {"type": f"{kind}Pressure", "status": "False", "reason": "Fake", "message": "fake"}
            for kind in ("Memory", "Disk", "PID")
        ]
        return {
            "capacity": self._capacity,
            "allocatable": self._capacity,
            "conditions": [condition | times for condition in (ready, *pressures)],
            "addresses": [{"type": "InternalIP", "address": self._host_address(name)}],
            "nodeInfo": dict.fromkeys(
                ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"), "fake"
            )
            | {"containerRuntimeVersion": "fake://1", "kubeletVersion": "v1.36.0"}
            | {"kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"},
        }

    def _host_address(self, name: str) -> str:
        number = self._names.index(name)
        return f"172.20.{number // 250}.{number % 250 + 1}"

    def _lease_path(self, name: str = "") -> str:
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        return f"{path}/{name}" if name else path

    def _lease_spec(self, name: str) -> Object:
        return {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now_text(True)}

    def _renew_leases(self) -> None:
        failures = 0
        while failures * LEASE_SECONDS < 60:
            try:
                for name in self._names:
                    if name not in self._silent:
                        self._renew(name)
                failures = 0
            except (ApiError, OSError) as error:
                failures += 1
                print(f"fake nodes: heartbeat: {error}", flush=True)
            time.sleep(LEASE_SECONDS)

    def _renew(self, name: str) -> None:
        self._api.patch(self._lease_path(name), {"spec": self._lease_spec(name)})
        if name in self._not_ready:
            self._api.patch(
                f"/api/v1/nodes/{name}/status", {"status": self._node_status(name)}, STRATEGIC
            )
            self._not_ready.discard(name)

    def _on_node(self, kind: str, node: Object) -> None:
        name = node["metadata"]["name"]
        conditions = node.get("status", {}).get("conditions", [])
        if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
            self._not_ready.add(name)
        if kind != "DELETED" and annotation(node, "do") == "silent":
            self._silent.add(name)
        elif name in self._silent:
            self._silent.discard(name)
            with self._lock:
                waiting = [k for k, pod in self._pods.items() if pod["spec"]["nodeName"] == name]
            for key in waiting:
                self._queue.put(key)

    # --- Pods ------------------------------------------------------------------------------------

    def _on_pod(self, kind: str, pod: Object) -> None:
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        with self._lock:
            if kind == "DELETED":
                self._pods.pop(key, None)
                self._done.pop(pod["metadata"]["uid"], None)
                self._begun.pop(pod["metadata"]["uid"], None)
                return
            # What a patch answered may be here before older news from the watch.
            if version(pod) <= version(self._pods.get(key)):
                return
            self._pods[key] = pod
        self._queue.put(key)

    def _work(self) -> None:
        while True:
            key = self._queue.take()
            try:
                self._advance(key)
            except ApiError as error:
                # 404 and 409: the pod went or changed; its event is under way and comes here again.
                if error.code not in (404, 409):
                    print(f"fake nodes: {key}: {error}", flush=True)
                    self._queue.put(key, 1.0)
            except OSError as error:
                print(f"fake nodes: {key}: {error}", flush=True)
                self._queue.put(key, 1.0)
            finally:
                self._queue.finish(key)

    def _advance(self, key: str) -> None:
        with self._lock:
            pod = self._pods.get(key)
        if pod is None or pod["spec"]["nodeName"] in self._silent:
            return
        if pod["spec"]["nodeName"] not in self._names:
            return
        uid = pod["metadata"]["uid"]
        step = next_step(pod, self._done.get(uid, ""), self._address(pod), now_text())
        if step is None or self._is_put_off(key, uid, step):
            return
        self._do(pod, step)
        if step.command:
            self._done[uid] = step.command

    def _is_put_off(self, key: str, uid: str, step: Step) -> bool:
        if step.delay <= 0:
            return False
        # A delay begins when its step is first seen, not again with each event of the pod.
        what = step.command or ("remove" if step.remove else str((step.status or {}).get("phase")))
        begun, due = self._begun.get(uid, ("", 0.0))
        if begun != what:
            due = time.monotonic() + step.delay
            self._begun[uid] = (what, due)
        rest = due - time.monotonic()
        if rest > 0:
            self._queue.put(key, rest)
        return rest > 0

    def _address(self, pod: Object) -> str:
        if known := (pod.get("status") or {}).get("podIP"):
            return str(known)
        number = next(self._addresses)
        return f"10.{244 + number // 65000 % 8}.{number // 250 % 250}.{number % 250 + 2}"

    def _do(self, pod: Object, step: Step) -> None:
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if step.remove:
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
            self._api.delete(path, options)
            return
        status = {"hostIP": self._host_address(pod["spec"]["nodeName"])} | (step.status or {})
        # The uid makes it a conflict when a new pod has the name. The version would make a conflict
        # of any change meanwhile, also of those that the step does not depend on.
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        self._on_pod("MODIFIED", self._api.patch(path + "/status", body, STRATEGIC))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--cpu", default="64")
    parser.add_argument("--memory", default="256Gi")
    parser.add_argument("--gpus", default="8")
    parser.add_argument("--pods", default="600", help="pods that a node takes")
    options = parser.parse_args()
    capacity = {"cpu": options.cpu, "memory": options.memory, "pods": options.pods}
    capacity |= {"nvidia.com/gpu": options.gpus, "ephemeral-storage": "1Ti"}
    names = [f"fake-{number}" for number in range(options.nodes)]
    FakeNodes(Api(options.folder), names, capacity).run()
    print("fake nodes: no API server for a minute", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
