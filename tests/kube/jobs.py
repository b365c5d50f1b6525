"""Jobs of tests: made, looked at, and their pods told what to do.

space = Space(plane, namespace)
job = space.corro_job("a", target=2)
job.wait_for_state("Running")
space.command("a-worker-0-g0", "oom")
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from api import ApiError
from harness import Plane, wait_until

Object = dict[str, Any]

LABEL = "training.corro.dev/"
UID_LABEL = LABEL + "job-uid"
DO = "fake.corro.dev/do"
MESSAGE = "fake.corro.dev/message"
# Where the kinds are that the operator makes.
PLACES = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "PodGroup": "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups",
    "MPIJob": "/apis/kubeflow.org/v2beta1/namespaces/{}/mpijobs",
    "CorroJob": "/apis/training.corro.dev/v1/namespaces/{}/corrojobs",
}
NAMES = {"MPIJob": "mpijobs.v2beta1.kubeflow.org", "CorroJob": "corrojobs.training.corro.dev"}
# What a test waits for at most. The machines that run these tests are often busy.
PATIENCE = 90.0


def name_of(object_: Object) -> str:
    return str(object_["metadata"]["name"])


def is_live(pod: Object) -> bool:
    """True for a pod that has neither ended nor been asked to."""
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return not ended and "deletionTimestamp" not in pod["metadata"]


def corro_manifest(name: str, target: int = 2, template: Object | None = None) -> Object:
    """A CorroJob whose failures are answered at once."""
    container = {"name": "train", "image": "image", "command": ["python", "train.py"]}
    pod = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    for part, value in (template or {}).items():
        pod[part] = pod.get(part, {}) | value
    rule = {"backoffSeconds": 0, "maxBackoffSeconds": 0}
    return {
        "apiVersion": "training.corro.dev/v1",
        "kind": "CorroJob",
        "metadata": {"name": name},
        "spec": {
            "worker": {"target": target, "max": 16, "template": pod},
            "restart": {cause: dict(rule) for cause in ("userError", "lostPod", "outOfMemory")},
        },
    }


def mpi_manifest(name: str, workers: int = 2, **run_policy: Any) -> Object:
    """An MPIJob of v2beta1."""

    def role(replicas: int, command: list[str]) -> Object:
        container = {"name": "main", "image": "image", "command": command}
        pod = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
        return {"replicas": replicas, "template": pod}

    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "runPolicy": run_policy,
            "mpiReplicaSpecs": {
                "Launcher": role(1, ["mpirun", "python", "train.py"]),
                "Worker": role(workers, ["sleep", "inf"]),
            },
        },
    }


class Space:
    """One namespace of a plane, and what is in it."""

    def __init__(self, plane: Plane, name: str) -> None:
        self.plane = plane
        self.api = plane.api
        self.name = name
        self.kubeconfig: Path = plane.folder / "admin.kubeconfig"

    def path(self, kind: str, name: str = "") -> str:
        path = PLACES[kind].format(self.name)
        return f"{path}/{name}" if name else path

    def apply(self, manifest: Object | Path) -> Job:
        """As `kubectl apply -f`."""
        body: Object = (
            yaml.safe_load(manifest.read_text()) if isinstance(manifest, Path) else manifest
        )
        text = manifest.read_text() if isinstance(manifest, Path) else yaml.safe_dump(manifest)
        self.plane.kubectl("apply", "-n", self.name, "-f", "-", text=text)
        return Job(self, body["kind"], name_of(body))

    def corro_job(self, name: str, target: int = 2, **spec: Any) -> Job:
        manifest = corro_manifest(name, target)
        manifest["spec"] |= spec
        return self.create(manifest)

    def create(self, manifest: Object) -> Job:
        version, kind = manifest["apiVersion"], manifest["kind"]
        path = f"/apis/{version}/namespaces/{self.name}/{kind.lower()}s"
        self.api.post(path, manifest)
        return Job(self, kind, name_of(manifest))

    def items(self, kind: str, **query: str) -> dict[str, Object]:
        try:
            items = self.api.get(self.path(kind), **query)["items"]
        except ApiError as error:
            if kind == "PodGroup" and error.code == 404:  # A plane without the gang scheduler.
                return {}
            raise
        return {name_of(item): item for item in items}

    def command(self, pod: str, do: str, message: str = "") -> None:
        """Has the pod's fake node do something: see pod_life.py."""
        said = {MESSAGE: message} if message else {}
        self.api.patch(self.path("Pod", pod), {"metadata": {"annotations": {DO: do} | said}})


class Job:
    """One job; every method asks the API server."""

    def __init__(self, space: Space, kind: str, name: str) -> None:
        self.space = space
        self.kind = kind
        self.name = name
        self.uid = str(self.get()["metadata"]["uid"])

    @property
    def path(self) -> str:
        return self.space.path(self.kind, self.name)

    def get(self) -> Object:
        return self.space.api.get(self.path)

    def status(self) -> Object:
        return dict(self.get().get("status") or {})

    def patch(self, spec: Object) -> None:
        self.space.api.patch(self.path, {"spec": spec})

    def delete(self) -> None:
        self.space.api.delete(self.path, {"propagationPolicy": "Background"})

    def condition(self, kind: str) -> Object:
        conditions = self.status().get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), {})

    def objects(self, kind: str) -> dict[str, Object]:
        return self.space.items(kind, labelSelector=f"{UID_LABEL}={self.uid}")

    def all_objects(self) -> dict[str, list[str]]:
        """The names of all that is there of the job, by kind."""
        kinds = [kind for kind in PLACES if kind not in NAMES]
        return {kind: names for kind in kinds if (names := sorted(self.objects(kind)))}

    def pods(self, role: str = "worker") -> dict[str, Object]:
        """Pods of that role that have neither ended nor been asked to."""
        selector = f"{UID_LABEL}={self.uid},{LABEL}role={role}"
        pods = self.space.items("Pod", labelSelector=selector)
        return {name: pod for name, pod in pods.items() if is_live(pod)}

    def events(self) -> list[Object]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.space.name}/events"
        events = self.space.api.get(path)["items"]
        return [event for event in events if event["regarding"].get("uid") == self.uid]

    # --- Waiting ---------------------------------------------------------------------------------

    def wait_for_state(self, state: str) -> Object:
        """Returns the status once it has that state."""
        return self.wait(lambda status: status.get("state") == state, f"state {state}")

    def wait_until(self, condition: Callable[[], Any], what: str) -> Any:
        """As harness.wait_until; a failure tells the job's status."""
        try:
            return wait_until(condition, f"{self.kind} {self.name}: {what}", PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}; its status: {self.status()}") from None

    def wait(self, is_so: Callable[[Object], Any], what: str) -> Object:
        """Returns the status once `is_so(status)` holds."""

        def holds() -> Object | None:
            status = self.status()
            return status if is_so(status) else None

        return dict(self.wait_until(holds, what))

    def wait_for_condition(self, kind: str, reason: str) -> Object:
        """Returns the condition once it is true with that reason."""

        def holds() -> Object | None:
            condition = self.condition(kind)
            is_so = condition.get("status") == "True" and condition.get("reason") == reason
            return condition if is_so else None

        return dict(self.wait_until(holds, f"{kind}, because {reason}"))

    def wait_for_running(self, pods: set[str], role: str = "worker") -> Object:
        """Returns the status once exactly these pods live, and the job runs with them."""

        def runs() -> bool:
            live = self.pods(role)
            phases = {pod["status"].get("phase") for pod in live.values()}
            return set(live) == pods and phases == {"Running"}

        self.wait_until(runs, f"{sorted(pods)} running")
        return self.wait(
            lambda s: s.get("state") == "Running" and s.get("ready") == s.get("desired"), "running"
        )

    def wait_for_no_pods(self) -> None:
        self.wait_until(lambda: not self.objects("Pod"), "no pods")

    def wait_for_nothing(self) -> None:
        """Waits until the garbage collector has taken all that belonged to the job."""
        wait_until(lambda: not self.all_objects(), f"nothing being left of {self.name}", PATIENCE)

    def workers(self, *generations: int) -> set[str]:
        """Names of a CorroJob's workers with these generations, by rank."""
        return {f"{self.name}-worker-{i}-g{g}" for i, g in enumerate(generations)}
