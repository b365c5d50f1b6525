"""Jobs in queues of Kueue, with its real controller (kueue.py) and `corro operator`.

The pods are played (pod_life.py). Each of them asks for one CPU, so a queue's quota says how many
may run; heads are in no queue.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Plane, apply_crds, own_plane
from jobs import Job, Object, Space, corro_manifest, mpi_manifest
from kueue import Kueue

GATE = "kueue.x-k8s.io/admission"
LABEL = "kueue.x-k8s.io/queue-name"


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    """Hides the plane of all other tests: on this one Kueue is asked about every pod."""
    with own_plane() as started:
        yield started


@pytest.fixture(scope="module")
def crds(plane: Plane) -> Plane:
    apply_crds(plane)
    return plane


@pytest.fixture(scope="module")
def kueue(crds: Plane) -> Iterator[Kueue]:
    with Kueue(crds) as process:
        yield process


@pytest.fixture
def queue(kueue: Kueue, space: Space) -> str:
    """A queue for two workers; its ClusterQueue has the same name."""
    kueue.make_queue(space.name, space.name, cpu=2)
    return space.name


def with_cpu(template: Object) -> None:
    for container in template["spec"]["containers"]:
        container["resources"] = {"requests": {"cpu": "1"}}


def start(space: Space, name: str, target: int, fewest: int = 0) -> Job:
    """A job in the namespace's queue; with `fewest` it is elastic."""
    manifest = corro_manifest(name, target)
    manifest["spec"] |= {"queue": space.name, "gang": "Off"}
    with_cpu(manifest["spec"]["worker"]["template"])
    if fewest:
        manifest["spec"]["worker"]["min"] = fewest
    return space.create(manifest)


def gated(job: Job) -> set[str]:
    """Its live pods that Kueue has not admitted."""
    pods = job.pods() | job.pods("head") | job.pods("launcher")
    gates = {name: pod["spec"].get("schedulingGates") or [] for name, pod in pods.items()}
    return {name for name, names in gates.items() if GATE in [gate["name"] for gate in names]}


def uids(job: Job) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}


def wait_for_gated(job: Job, pods: set[str]) -> None:
    job.wait_until(lambda: gated(job) == pods, f"{sorted(pods)} gated")


def wait_for_message(job: Job, condition: str, *words: str) -> Object:
    """Returns the condition once it is true and says all these words."""

    def says() -> Object | None:
        told = job.condition(condition)
        is_so = told.get("status") == "True" and all(word in told["message"] for word in words)
        return told if is_so else None

    return dict(job.wait_until(says, f"{condition} that says {words}"))


# --- Jobs that are not elastic -------------------------------------------------------------------


def test_a_gang_waits_for_room_for_all_of_it(kueue: Kueue, space: Space, queue: str) -> None:
    job = start(space, "a", 3)
    wait_for_gated(job, job.workers(0, 0, 0))
    wait_for_message(job, "Pending", "0 of 3 workers run", f"waits in queue {queue} of Kueue")
    job.wait_until(lambda: kueue.workloads(space.name), "its Workload")
    [workload] = kueue.workloads(space.name)
    assert [pods["count"] for pods in workload["spec"]["podSets"]] == [3]
    kueue.set_quota(queue, cpu=3)
    job.wait_for_running(job.workers(0, 0, 0))
    assert job.status()["restarts"] == 0


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("end", ["deleted", "suspended", "failed", "succeeded"])
def test_a_gang_that_ends_makes_room_for_another(space: Space, end: str) -> None:
    first = start(space, "first", 2)
    first.wait_for_running(first.workers(0, 0))
    second = start(space, "second", 2)
    wait_for_gated(second, second.workers(0, 0))
    if end == "deleted":
        first.delete()
        first.wait_for_nothing()
    elif end == "suspended":
        first.patch({"suspend": True})
        first.wait_for_no_pods()
    elif end == "failed":
        first.patch({"restart": {"userError": {"limit": 0}}})
        space.command("first-worker-0-g0", "exit=1")
        first.wait_for_state("Failed")
    else:
        for pod in first.workers(0, 0):
            space.command(pod, "exit=0")
        first.wait_for_state("Succeeded")
    second.wait_for_running(second.workers(0, 0))


@pytest.mark.usefixtures("queue")
def test_a_gang_that_waits_can_be_deleted_and_made_again(space: Space) -> None:
    job = start(space, "a", 3)
    wait_for_gated(job, job.workers(0, 0, 0))
    job.delete()
    job = start(space, "a", 2)
    job.wait_for_running(job.workers(0, 0))


@pytest.mark.usefixtures("queue")
def test_a_gang_that_lost_a_worker_or_is_resized_is_admitted_anew(space: Space) -> None:
    job = start(space, "a", 1)
    job.wait_for_running(job.workers(0))
    job.patch({"worker": {"target": 2}})
    job.wait_for_running({"a-worker-0-g1", "a-worker-1-g0"})
    space.api.delete(space.path("Pod", "a-worker-1-g0"))
    job.wait_for_running({"a-worker-0-g2", "a-worker-1-g1"})
    assert job.status()["restartCounts"] == {"lostPod": 1}


def test_a_gang_of_a_drained_queue_ends_and_comes_back(
    kueue: Kueue, space: Space, queue: str
) -> None:
    job = start(space, "a", 2)
    job.wait_for_running(job.workers(0, 0))
    kueue.set_stop_policy(queue, "HoldAndDrain")
    wait_for_gated(job, job.workers(1, 1))
    wait_for_message(job, "Pending", "0 of 2 workers run", f"waits in queue {queue} of Kueue")
    assert "ClusterQueue is stopped" in job.condition("Restarting")["message"]
    kueue.set_stop_policy(queue, "None")
    job.wait_for_running(job.workers(1, 1))
    assert job.status()["restartCounts"] == {"lostPod": 1}


# --- Elastic jobs --------------------------------------------------------------------------------


def test_an_elastic_job_runs_with_the_workers_that_are_admitted(
    kueue: Kueue, space: Space, queue: str
) -> None:
    job = start(space, "a", 3, fewest=1)
    job.wait_until(lambda: len(gated(job)) == 1, "two admitted workers")
    told = wait_for_message(job, "Running", "2 of 3 workers run")
    [waits] = gated(job)
    assert f"{waits}: waits in queue {queue} of Kueue" in told["message"]
    running = {name: uid for name, uid in uids(job).items() if name != waits}
    kueue.set_quota(queue, cpu=3)
    job.wait_for_running(job.workers(0, 0, 0))
    assert uids(job).items() >= running.items()
    assert "workers run" not in job.condition("Running")["message"]
    assert job.status()["restarts"] == 0


@pytest.mark.usefixtures("queue")
def test_an_elastic_job_that_shrinks_makes_room_for_another(space: Space) -> None:
    elastic = start(space, "elastic", 2, fewest=1)
    elastic.wait_for_running(elastic.workers(0, 0))
    other = start(space, "other", 1)
    wait_for_gated(other, other.workers(0))
    space.plane.kubectl("scale", "-n", space.name, "corrojob/elastic", "--replicas=1")
    other.wait_for_running(other.workers(0))
    elastic.wait_for_running(elastic.workers(0))
    assert elastic.status()["restarts"] == 0
    elastic.delete()
    elastic.wait_for_nothing()


def test_an_elastic_job_of_a_drained_queue_ends_and_comes_back(
    kueue: Kueue, space: Space, queue: str
) -> None:
    job = start(space, "a", 2, fewest=1)
    job.wait_for_running(job.workers(0, 0))
    kueue.set_stop_policy(queue, "HoldAndDrain")
    wait_for_gated(job, job.workers(1, 1))
    wait_for_message(job, "Pending", "0 of 2 workers run", f"waits in queue {queue} of Kueue")
    assert job.condition("Running")["status"] == "False"
    notes = [event["note"] for event in job.events() if event["reason"] == "CorroJobReplacing"]
    assert len(notes) == 2
    assert all("ClusterQueue is stopped" in note for note in notes)
    assert set(job.pods("head")) == {"a-head"}, "heads are in no queue"
    kueue.set_stop_policy(queue, "None")
    job.wait_for_running(job.workers(1, 1))
    assert job.status()["restartCounts"] == {"lostPod": 2}


# --- MPIJobs, which Kueue knows ------------------------------------------------------------------


def test_an_mpijob_is_suspended_admitted_and_drained(
    kueue: Kueue, space: Space, queue: str
) -> None:
    manifest = mpi_manifest("m", 2)
    manifest["metadata"]["labels"] = {LABEL: queue}
    for role in manifest["spec"]["mpiReplicaSpecs"].values():
        with_cpu(role["template"])
    job = space.create(manifest)
    job.wait_for_state("Suspended")
    assert not job.objects("Pod")
    kueue.set_quota(queue, cpu=3)
    job.wait_for_running({"m-worker-0", "m-worker-1"})
    assert not gated(job)
    kueue.set_stop_policy(queue, "HoldAndDrain")
    job.wait_for_state("Suspended")
    job.wait_for_no_pods()
    kueue.set_stop_policy(queue, "None")
    job.wait_for_running({"m-worker-0-g1", "m-worker-1-g1"})
