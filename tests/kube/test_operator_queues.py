"""Gangs and queues of others: what `corro operator` makes for Volcano, scheduler-plugins and Kueue.

Their programs are not here. Their definitions are, cut down to what corro writes, and the tests
play the scheduler: pods that name it stay Pending until a test binds them. Kueue is played by its
two moves: a job is made suspended, and resumed with the nodes that were chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from harness import (
    CRDS,
    MANIFESTS,
    Plane,
    apply_crds,
    is_established,
    own_plane,
    wait_until,
)
from jobs import Job, Space, corro_manifest, mpi_manifest
from operator_process import OperatorProcess

Object = dict[str, Any]
NODE = "fake-0"
QUEUE = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True)
class Scheduler:
    """One that starts pods together, and how pods say that they are its."""

    manifest: str
    api: str
    name: str  # As pods name it, and as --gang-scheduling does.
    choice: str  # A CorroJob's spec.gang.
    mark: tuple[str, str]  # Where a pod names its group.

    @property
    def definition(self) -> str:
        return f"podgroups.{self.api.partition('/')[0]}"

    def group(self, space: Space, job: str) -> Object:
        return space.api.get(f"/apis/{self.api}/namespaces/{space.name}/podgroups/{job}")

    def is_of(self, pod: Object, job: str) -> bool:
        place, key = self.mark
        marked = (pod["metadata"].get(place) or {}).get(key)
        return bool(marked == job and pod["spec"]["schedulerName"] == self.name)


VOLCANO = Scheduler(
    "volcano",
    "scheduling.volcano.sh/v1beta1",
    "volcano",
    "Volcano",
    ("annotations", "scheduling.k8s.io/group-name"),
)
PLUGINS = Scheduler(
    "scheduler_plugins",
    "scheduling.x-k8s.io/v1alpha1",
    "scheduler-plugins-scheduler",
    "SchedulerPlugins",
    ("labels", "scheduling.x-k8s.io/pod-group"),
)
BOTH = pytest.mark.parametrize("scheduler", [VOLCANO, PLUGINS], ids=lambda s: s.manifest)


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    """Hides the plane of all other tests: this one has no gang of its own."""
    with own_plane() as started:
        yield started


@pytest.fixture(scope="module")
def crds(plane: Plane) -> Plane:
    apply_crds(plane)
    return plane


def served_groups(plane: Plane) -> set[str]:
    return {group["name"] for group in plane.api.get("/apis")["groups"]}


@contextmanager
def installed(plane: Plane, *schedulers: Scheduler) -> Iterator[None]:
    """Their definitions, for a while."""
    names = [scheduler.definition for scheduler in schedulers]
    groups = {scheduler.api.partition("/")[0] for scheduler in schedulers}
    for scheduler in schedulers:
        manifest = MANIFESTS / "schedulers" / f"{scheduler.manifest}.yaml"
        plane.kubectl("apply", "-f", str(manifest))
    wait_until(lambda: all(is_established(plane, name) for name in names), "the definitions")
    try:
        yield
    finally:
        for name in names:
            plane.api.delete(f"{CRDS}/{name}")
        wait_until(lambda: not served_groups(plane) & groups, "the definitions' end")


@contextmanager
def operator(space: Space, *options: str) -> Iterator[OperatorProcess]:
    with OperatorProcess(space.kubeconfig, space.name, *options).begin() as process:
        yield process
        assert not process.log("an action did not end well")
        process.stop()


def bind(space: Space, pods: list[str]) -> None:
    """Does what a scheduler does once the whole gang fits."""
    for pod in pods:
        body = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": NODE}}
        space.api.post(space.path("Pod", f"{pod}/binding"), body)


def waiting_pods(job: Job, is_gangs: Callable[[Object], bool]) -> list[str]:
    """The gang's pods that have no node; none of them may run already."""
    pods = {name: pod for name, pod in job.objects("Pod").items() if is_gangs(pod)}
    assert not [name for name, pod in pods.items() if pod["status"].get("phase") == "Running"]
    return sorted(pods)


# --- CorroJob ------------------------------------------------------------------------------------


@BOTH
def test_a_gang_waits_for_its_scheduler_and_its_head_does_not(
    crds: Plane, bare_space: Space, scheduler: Scheduler
) -> None:
    with installed(crds, scheduler), operator(bare_space):
        job = bare_space.corro_job("a", 3, queue="team-a")
        workers = sorted(job.workers(0, 0, 0))
        gang = job.wait_until(
            lambda: waiting_pods(job, lambda pod: scheduler.is_of(pod, "a")) == workers,
            "the gang's pods",
        )
        assert gang
        spec = scheduler.group(bare_space, "a")["spec"]
        assert spec["minMember"] == 3  # One that is not elastic runs with all.
        assert spec.get("queue") == ("team-a" if scheduler is VOLCANO else None)
        head = job.wait_until(lambda: job.pods("head").get("a-head"), "the head")
        assert head["spec"]["schedulerName"] == "default-scheduler"
        job.wait_for_condition("Pending", "WaitingForPods")
        bind(bare_space, workers)
        job.wait_for_running(set(workers))


def test_the_first_scheduler_that_is_served_is_taken_unless_one_is_named(
    crds: Plane, bare_space: Space
) -> None:
    with installed(crds, VOLCANO, PLUGINS), operator(bare_space):
        for name, gang, scheduler in (
            ("auto", "Auto", VOLCANO),
            ("named", "SchedulerPlugins", PLUGINS),
        ):
            job = bare_space.corro_job(name, 1, gang=gang)
            worker = job.wait_until(
                lambda job=job: job.pods().get(f"{job.name}-worker-0-g0"), "the worker"
            )
            assert scheduler.is_of(worker, name)
            assert scheduler.group(bare_space, name)["spec"]["minMember"] == 1
        off = bare_space.corro_job("off", 1, gang="Off")
        off.wait_for_running(off.workers(0))


@BOTH
def test_a_gang_that_is_not_served_blocks_its_job_until_it_is(
    crds: Plane, bare_space: Space, scheduler: Scheduler
) -> None:
    with operator(bare_space):
        job = bare_space.corro_job("a", 1, gang=scheduler.choice)
        told = job.wait_for_condition("Pending", "GangNotServed")
        assert scheduler.api.partition("/")[0] in told["message"]
        assert not job.objects("Pod")
    # What the cluster serves is asked for by each new leader.
    with installed(crds, scheduler), operator(bare_space):
        job.wait_until(lambda: set(job.pods()) == job.workers(0), "the worker")
        assert scheduler.group(bare_space, "a")["spec"]["minMember"] == 1


@pytest.fixture
def quotas(crds: Plane) -> Iterator[None]:
    """Another kind of scheduler-plugins' group, and no PodGroup."""
    group, name = "scheduling.x-k8s.io", "elasticquotas"
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    names = {"kind": "ElasticQuota", "plural": name, "singular": "elasticquota"}
    meta = {"name": f"{name}.{group}"}
    meta["annotations"] = {"api-approved.kubernetes.io": "unapproved, for tests"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    crds.api.post(CRDS, {"metadata": meta, "spec": spec})
    wait_until(lambda: group in served_groups(crds), "its group being served")
    yield
    crds.api.delete(f"{CRDS}/{name}.{group}")
    wait_until(lambda: group not in served_groups(crds), "the definition's end")


@pytest.mark.usefixtures("quotas")
def test_a_group_of_apis_without_podgroups_is_no_gang_and_holds_nobody_up(
    bare_space: Space,
) -> None:
    with operator(bare_space):
        job = bare_space.corro_job("a", 1)
        job.wait_for_running(job.workers(0))
        named = bare_space.corro_job("b", 1, gang="SchedulerPlugins")
        named.wait_for_condition("Pending", "GangNotServed")


@BOTH
def test_a_group_goes_with_suspension_and_comes_with_resumption(
    crds: Plane, bare_space: Space, scheduler: Scheduler
) -> None:
    groups = f"/apis/{scheduler.api}/namespaces/{bare_space.name}/podgroups"
    with installed(crds, scheduler), operator(bare_space):
        job = bare_space.corro_job("a", 2)
        wait_until(lambda: scheduler.group(bare_space, "a"), "the group")
        job.wait_until(lambda: len(job.pods()) == 2, "the workers")
        job.patch({"suspend": True})
        job.wait_for_state("Suspended")
        job.wait_for_no_pods()
        wait_until(lambda: not bare_space.api.get(groups)["items"], "the group's end")
        job.patch({"suspend": False})
        wait_until(lambda: scheduler.group(bare_space, "a"), "another group")
        job.delete()
        wait_until(lambda: not bare_space.api.get(groups)["items"], "the group's end")


# --- MPIJob --------------------------------------------------------------------------------------


# mpijob same: gang; gang-flag; v2.minAvailable; case.integration-gang; case.e2e-gang
@BOTH
def test_an_mpijobs_gang_is_launcher_and_workers(
    crds: Plane, bare_space: Space, scheduler: Scheduler
) -> None:
    policy = {"queue": "team-a", "minResources": {"cpu": "100000"}}
    with installed(crds, scheduler), operator(bare_space, "--gang-scheduling", scheduler.name):
        job = bare_space.create(mpi_manifest("m", schedulingPolicy=policy))

        def gang() -> list[str]:
            return waiting_pods(job, lambda pod: scheduler.is_of(pod, "m"))

        pods = job.wait_until(lambda: found if len(found := gang()) == 3 else None, "its pods")
        spec = scheduler.group(bare_space, "m")["spec"]
        assert spec["minMember"] == 3
        assert spec["minResources"] == {"cpu": "100000"}
        # Nobody has so many: the user takes that back, and the group follows.
        job.patch({"runPolicy": {"schedulingPolicy": {"minResources": None}}})
        wait_until(
            lambda: "minResources" not in scheduler.group(bare_space, "m")["spec"],
            "the group without it",
        )
        bind(bare_space, pods)
        job.wait_for_running({"m-worker-0", "m-worker-1"})


# mpijob different: gang-waiting-launcher
@BOTH
def test_a_launcher_that_waits_is_none_of_the_gang_that_it_waits_for(
    crds: Plane, bare_space: Space, scheduler: Scheduler
) -> None:
    manifest = mpi_manifest("m", schedulingPolicy={"minAvailable": 3})
    manifest["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    with installed(crds, scheduler), operator(bare_space, "--gang-scheduling", scheduler.name):
        job = bare_space.create(manifest)
        workers = ["m-worker-0", "m-worker-1"]
        job.wait_until(lambda: sorted(job.pods()) == workers, "the workers")
        assert scheduler.group(bare_space, "m")["spec"]["minMember"] == 2
        assert not job.objects("Job")
        bind(bare_space, workers)
        launcher = job.wait_until(lambda: sorted(job.pods("launcher")), "the launcher")
        bind(bare_space, launcher)
        job.wait_for_running(set(workers))


# --- Kueue ---------------------------------------------------------------------------------------


@pytest.fixture
def flavor(plane: Plane) -> Iterator[Object]:
    """A label of one node, which a queue chooses by."""
    label: Object = {"metadata": {"labels": {"flavor": "spot"}}}
    plane.api.patch(f"/api/v1/nodes/{NODE}", label)
    yield {"flavor": "spot"}
    label["metadata"]["labels"]["flavor"] = None
    plane.api.patch(f"/api/v1/nodes/{NODE}", label)


def nodes_of(job: Job) -> set[str]:
    pods = [*job.pods().values(), *job.pods("launcher").values()]
    return {str(pod["spec"].get("nodeName")) for pod in pods}


# mpijob same: resume-directives; v2.suspend; case.e2e-suspended
# mpijob different: created-suspended
def test_an_mpijob_of_a_queue_has_no_pods_before_its_admission(
    bare_space: Space, flavor: Object
) -> None:
    manifest = mpi_manifest("m", suspend=True)
    manifest["metadata"]["labels"] = {QUEUE: "team-a"}
    with operator(bare_space):
        job = bare_space.create(manifest)
        job.wait_for_state("Suspended")
        bare_space.create(mpi_manifest("other", 1)).wait_for_state("Running")
        assert not job.all_objects()
        assert "startTime" not in job.status()
        chosen = {"template": {"spec": {"nodeSelector": flavor}}}
        job.patch({"mpiReplicaSpecs": {"Launcher": chosen, "Worker": chosen}})
        job.patch({"runPolicy": {"suspend": False}})
        job.wait_for_running({"m-worker-0", "m-worker-1"})
        assert nodes_of(job) == {NODE}
        # Preempted, and admitted elsewhere: nothing of before is left.
        job.patch({"runPolicy": {"suspend": True}})
        job.wait_for_state("Suspended")
        job.wait_for_no_pods()
        chosen = {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "fake-1"}}}}
        chosen["template"]["spec"]["nodeSelector"]["flavor"] = None
        job.patch({"mpiReplicaSpecs": {"Launcher": chosen, "Worker": chosen}})
        job.patch({"runPolicy": {"suspend": False}})
        job.wait_for_running({"m-worker-0-g1", "m-worker-1-g1"})
        assert nodes_of(job) == {"fake-1"}
        assert job.status().get("restarts", 0) == 0


def test_a_corrojob_of_a_queue_has_no_pods_before_its_admission(
    bare_space: Space, flavor: Object
) -> None:
    manifest = corro_manifest("a")
    manifest["metadata"]["labels"] = {QUEUE: "team-a"}
    manifest["spec"] |= {"suspend": True, "queue": "team-a"}
    with operator(bare_space):
        job = bare_space.create(manifest)
        job.wait_for_state("Suspended")
        bare_space.corro_job("other", 1).wait_for_state("Running")
        assert not job.all_objects()
        job.patch({"worker": {"template": {"spec": {"nodeSelector": flavor}}}})
        job.patch({"suspend": False})
        job.wait_for_running(job.workers(0, 0))
        assert nodes_of(job) == {NODE}
        # Without a gang that has queues, pods name theirs, so that Kueue's own way for pods works.
        for pod in job.pods().values():
            assert pod["metadata"]["labels"][QUEUE] == "team-a"
            group = pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"]
            assert group == f"a-{job.uid[:8]}-1"  # It was suspended for a round.
            count = pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"]
            assert count == "2"
        [head] = job.pods("head").values()
        assert QUEUE not in head["metadata"]["labels"]
