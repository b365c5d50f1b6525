"""MPIJob under `corro operator`: the manifests that people have, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import MANIFESTS, Plane, wait_until
from jobs import LABEL, PATIENCE, UID_LABEL, Job, Space, mpi_manifest, name_of
from operator_process import OperatorProcess

Object = dict[str, Any]

V2_LABELS = {"training.kubeflow.org/operator-name": "mpi-operator"}


@dataclass(frozen=True)
class Case:
    """What a manifest has to become."""

    workers: int
    labels: Object  # Of its pods, beside ours; each version had its own.
    role_label: str
    slots: int
    pod_launcher: bool = False
    is_old: bool = False
    has_ssh: bool = False
    first_index: str = ""  # Of its replica-index labels.


def old(name: str, workers: int, slots: int) -> Case:
    labels = {"group_name": "kubeflow.org", "mpi_job_name": name}
    return Case(workers, labels, "mpi_role_type", slots, is_old=True)


def v2(name: str, workers: int, slots: int, **more: Any) -> Case:
    labels = V2_LABELS | {"training.kubeflow.org/job-name": name}
    return Case(workers, labels, "training.kubeflow.org/job-role", slots, **more)


CASES = {
    "mpijob_v1alpha1_gpus": old("resnet-gpus", 2, 8),
    "mpijob_v1alpha1_replicas": old("resnet-replicas", 4, 2),
    "mpijob_v1alpha2_horovod": old("tensorflow-mnist", 2, 1),
    "mpijob_v1_elastic": Case(
        2,
        {"group-name": "kubeflow.org", "mpi-job-name": "mnist-elastic"},
        "mpi-job-role",
        1,
        pod_launcher=True,
        is_old=True,
    ),
    "mpijob_v2beta1_gang": v2("resnet-gang", 2, 8, first_index="1"),
    "mpijob_v2beta1_intel": v2("pi-intel", 2, 1, has_ssh=True, first_index="0"),
}


def test_every_manifest_has_a_case() -> None:
    assert sorted(CASES) == sorted(path.stem for path in MANIFESTS.glob("mpijob_*.yaml"))


@pytest.fixture
def h100_nodes(plane: Plane) -> Iterator[None]:
    """Nodes that the gang's node selector chooses, as its users have them."""
    label: Object = {"metadata": {"labels": {"accelerator": "h100"}}}
    names = [name_of(node) for node in plane.api.get("/api/v1/nodes")["items"]]
    for name in names:
        plane.api.patch(f"/api/v1/nodes/{name}", label)
    yield
    label["metadata"]["labels"]["accelerator"] = None
    for name in names:
        plane.api.patch(f"/api/v1/nodes/{name}", label)


def launcher_pods(job: Job) -> dict[str, Object]:
    return job.pods("launcher")


def command_launcher(job: Job, do: str) -> None:
    [name] = launcher_pods(job)
    job.space.command(name, do)


def start(space: Space, name: str = "m", workers: int = 2, **run_policy: Any) -> Job:
    job = space.create(mpi_manifest(name, workers, **run_policy))
    job.wait_for_running({f"{name}-worker-{i}" for i in range(workers)})
    return job


def expected_objects(job: Job, case: Case) -> Object:
    name = job.name
    pods = [f"{name}-head", *(f"{name}-worker-{i}" for i in range(case.workers))]
    expected = {
        "Pod": sorted([*pods, *launcher_pods(job)]),
        "Service": [name, f"{name}-head"],
        "ConfigMap": [f"{name}-config"],
        "Secret": [f"{name}-{job.uid}", *([f"{name}-ssh-{job.uid}"] if case.has_ssh else [])],
    }
    if not case.pod_launcher:
        expected["Job"] = [f"{name}-launcher"]
    return expected


def check_owners(job: Job) -> None:
    for kind in job.all_objects():
        for name, each in job.objects(kind).items():
            [owner] = each["metadata"]["ownerReferences"]
            if owner["kind"] == "Job":  # The launcher's pods are its Job's.
                assert owner["name"] == f"{job.name}-launcher"
                continue
            assert (owner["kind"], owner["uid"]) == ("MPIJob", job.uid), name
            assert owner["controller"]
            assert owner["blockOwnerDeletion"]


def check_labels(job: Job, case: Case) -> None:
    for name, pod in job.objects("Pod").items():
        labels = pod["metadata"]["labels"]
        assert labels[UID_LABEL] == job.uid
        role = labels[LABEL + "role"]
        if role == "head":
            continue
        assert labels[case.role_label] == role, name
        assert {key: labels.get(key) for key in case.labels} == case.labels
    index = job.objects("Pod")[f"{job.name}-worker-0"]["metadata"]["labels"]
    assert index.get("training.kubeflow.org/replica-index", "") == case.first_index
    for kind in ("Service", "ConfigMap", "Secret", "Job"):
        for each in job.objects(kind).values():
            assert each["metadata"]["labels"]["app"] == job.name


def check_data(job: Job, case: Case) -> None:
    files = job.objects("ConfigMap")[f"{job.name}-config"]["data"]
    expected = {"hostfile", "discover_hosts.sh", *(["kubexec.sh"] if case.is_old else [])}
    assert set(files) == expected
    lines = [line for line in files["hostfile"].splitlines() if "-worker-" in line]
    assert len(lines) == case.workers
    for i, line in enumerate(lines):
        assert line.startswith(f"{job.name}-worker-{i}")
        assert line.endswith((f"slots={case.slots}", f":{case.slots}")), line
    keys = set(job.objects("Secret")[f"{job.name}-{job.uid}"]["data"])
    assert {"head", "launcher", *(f"worker-{i}" for i in range(case.workers))} <= keys
    assert job.objects("Secret")[f"{job.name}-{job.uid}"]["immutable"]
    if case.has_ssh:
        ssh = job.objects("Secret")[f"{job.name}-ssh-{job.uid}"]
        assert set(ssh["data"]) == {"ssh-privatekey", "ssh-publickey"}
        assert ssh["type"] == "kubernetes.io/ssh-auth"


def check_hosts(job: Job) -> None:
    for name, pod in job.pods().items():
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (name, job.name)
        assert pod["spec"]["initContainers"][-1]["name"] == "corro-agent"
        assert pod["spec"]["containers"][0]["command"][:2] == ["/corro/bin/corro", "agent"]
    service = job.objects("Service")[job.name]
    assert service["spec"]["clusterIP"] == "None"
    address = job.objects("Service")[f"{job.name}-head"]["spec"]["clusterIP"]
    head = {"name": "CORRO_HEAD", "value": f"{address}:7077"}
    for pod in job.pods().values():
        assert head in pod["spec"]["containers"][0]["env"]


# mpijob different: ssh-secret
# mpijob same: owners; config-map; worker-pods; labels; labels-old
# mpijob same: case.integration-success
# mpijob different: versions; statefulset
@pytest.mark.usefixtures("h100_nodes")
@pytest.mark.parametrize("manifest", sorted(CASES))
def test_a_manifest_runs_and_ends_as_it_is(space: Space, manifest: str) -> None:
    case = CASES[manifest]
    job = space.apply(MANIFESTS / f"{manifest}.yaml")
    if job.get()["spec"].get("runPolicy", {}).get("suspend"):
        job.wait_for_state("Suspended")
        assert not job.objects("Pod")
        job.patch({"runPolicy": {"suspend": False}})  # As Kueue does.
    workers = {f"{job.name}-worker-{i}" for i in range(case.workers)}
    job.wait_for_running(workers)
    assert job.all_objects() == expected_objects(job, case)
    check_owners(job)
    check_labels(job, case)
    check_data(job, case)
    check_hosts(job)

    command_launcher(job, "exit=0")
    status = job.wait_for_state("Succeeded")
    assert status["completionTime"]
    assert job.condition("Running")["status"] == "False"
    # cleanPodPolicy Running and All take the workers, None (v1alpha1's and v2beta1's default) not.
    spec = job.get()["spec"]
    policy = spec.get("cleanPodPolicy") or spec.get("runPolicy", {}).get("cleanPodPolicy", "None")
    kept = workers if policy == "None" else set()
    wait_until(lambda: set(job.pods()) == kept, f"the workers that {policy} keeps")
    job.delete()
    job.wait_for_nothing()


# mpijob same: clean-pods
@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_the_pods_that_clean_pod_policy_names_stay(space: Space, policy: str) -> None:
    job = start(space, cleanPodPolicy=policy)
    space.command("m-worker-0", "exit=0")
    wait_until(lambda: set(job.pods()) == {"m-worker-1"}, "a worker that ended")
    command_launcher(job, "exit=0")
    job.wait_for_state("Succeeded")
    kept = {"None": {"m-worker-0", "m-worker-1"}, "Running": {"m-worker-0"}, "All": set()}[policy]

    def workers() -> set[str]:
        return {name for name in job.objects("Pod") if "-worker-" in name}

    wait_until(lambda: workers() == kept, f"workers {kept}")
    [launcher] = [name for name in job.objects("Pod") if "-launcher-" in name]
    assert job.objects("Pod")[launcher]["status"]["phase"] == "Succeeded"


# mpijob different: replacement-name
def test_a_lost_worker_is_replaced_and_the_others_go_on(space: Space) -> None:
    job = start(space)
    uids = {name: pod["metadata"]["uid"] for name, pod in job.objects("Pod").items()}
    space.api.delete(space.path("Pod", "m-worker-1"))
    status = job.wait_for_running({"m-worker-0", "m-worker-1-g1"})
    assert status["restarts"] == 1
    new = job.pods()["m-worker-1-g1"]
    assert new["spec"]["hostname"] == "m-worker-1"
    wait_until(lambda: len(job.objects("Pod")) == 4, "the old pod gone")
    for name, pod in job.objects("Pod").items():
        assert name == "m-worker-1-g1" or pod["metadata"]["uid"] == uids[name]


# mpijob different: evicted
def test_an_evicted_worker_does_not_fail_the_job(space: Space) -> None:
    job = start(space)
    space.command("m-worker-0", "evict")
    status = job.wait_for_running({"m-worker-0-g1", "m-worker-1"})
    assert status["restartCounts"]["lostPod"] == 1


# mpijob same: failed-launcher; case.e2e-malformed
def test_a_launcher_that_fails_for_good_fails_the_job(space: Space) -> None:
    job = start(space, backoffLimit=0)
    command_launcher(job, "evict")  # A container would be restarted: OnFailure.
    job.wait_for_state("Failed")
    assert job.condition("Failed")["reason"].startswith("BackoffLimitExceeded")


# mpijob same: v1-launcher
def test_a_launcher_of_v1_that_may_not_restart_fails_the_job(space: Space) -> None:
    job = space.apply(MANIFESTS / "mpijob_v1_elastic.yaml")
    job.wait_for_running({"mnist-elastic-worker-0", "mnist-elastic-worker-1"})
    space.command("mnist-elastic-launcher", "exit=7")
    job.wait_for_state("Failed")
    assert "exit code 7" in job.condition("Failed")["message"]


def test_a_launcher_of_v1_that_is_lost_is_replaced(space: Space) -> None:
    job = space.apply(MANIFESTS / "mpijob_v1_elastic.yaml")
    workers = {"mnist-elastic-worker-0", "mnist-elastic-worker-1"}
    job.wait_for_running(workers)
    space.command("mnist-elastic-launcher", "evict")
    wait_until(lambda: set(launcher_pods(job)) == {"mnist-elastic-launcher-g1"}, "another one")
    job.wait_for_running(workers)


# mpijob same: v2.suspend; suspend; case.integration-suspend
def test_suspend_and_resume(space: Space) -> None:
    job = start(space)
    job.patch({"runPolicy": {"suspend": True}})
    job.wait_for_state("Suspended")
    job.wait_for_no_pods()
    assert job.objects("Job")["m-launcher"]["spec"]["suspend"] is True
    job.patch({"runPolicy": {"suspend": False}})
    status = job.wait_for_running({"m-worker-0-g1", "m-worker-1-g1"})
    assert status.get("restarts", 0) == 0
    command_launcher(job, "exit=0")
    job.wait_for_state("Succeeded")


# mpijob same: finished
def test_a_finished_job_never_starts_again(bare_space: Space) -> None:
    with OperatorProcess(bare_space.kubeconfig, bare_space.name).begin() as operator:
        job = start(bare_space, cleanPodPolicy="All")
        command_launcher(job, "exit=0")
        job.wait_for_state("Succeeded")
        operator.stop()
    bare_space.api.delete(bare_space.path("Job", "m-launcher"), {"propagationPolicy": "Background"})
    wait_until(lambda: not job.objects("Job"), "the launcher gone")
    with OperatorProcess(bare_space.kubeconfig, bare_space.name).begin() as operator:
        start(bare_space, "n", 1)
        job.wait_for_no_pods()
        assert not job.objects("Job")
        assert job.status()["state"] == "Succeeded"
        operator.stop()


# mpijob different: v2.ttlSecondsAfterFinished
def test_time_to_live_takes_all(space: Space) -> None:
    job = start(space, ttlSecondsAfterFinished=1)
    command_launcher(job, "exit=0")
    wait_until(lambda: not space.items("MPIJob"), "the job's end", PATIENCE)
    job.wait_for_nothing()


# mpijob same: discover-hosts; scale-up
def test_running_hosts_are_discovered(space: Space) -> None:
    job = start(space)

    def hosts() -> int:
        files = job.objects("ConfigMap")["m-config"]["data"]
        return str(files["discover_hosts.sh"]).count("m-worker-")

    wait_until(lambda: hosts() == 2, "both hosts")
    job.patch({"mpiReplicaSpecs": {"Worker": {"replicas": 3}}})
    wait_until(lambda: hosts() == 3, "the third host")


# mpijob same: flags; case.e2e-domain
def test_flags_of_the_mpi_operator_are_taken(bare_space: Space) -> None:
    options = ["--threadiness", "2", "--kube-api-qps", "50", "--kube-api-burst", "100"]
    options += ["--cluster-domain", "corp.example"]
    with OperatorProcess(bare_space.kubeconfig, bare_space.name, *options).begin() as operator:
        job = start(bare_space)
        files = job.objects("ConfigMap")["m-config"]["data"]
        host = f"m-worker-0.m.{bare_space.name}.svc.corp.example slots=1"
        assert host in files["hostfile"].splitlines()
        operator.stop()


# mpijob different: stored-jobs
def test_a_job_of_another_operator_is_left_to_it(bare_space: Space) -> None:
    """Jobs that run under the MPI Operator when corro comes."""
    job = bare_space.create(mpi_manifest("m"))
    created = {"type": "Created", "status": "True", "reason": "MPIJobCreated", "message": "m"}
    bare_space.api.patch(job.path + "/status", {"status": {"conditions": [created]}})
    with OperatorProcess(bare_space.kubeconfig, bare_space.name).begin() as operator:
        start(bare_space, "n", 1)
        assert not job.all_objects()
        assert job.status()["conditions"] == [created]
        operator.stop()


# mpijob same: managed-elsewhere; v2.managedBy; case.integration-managed; case.e2e-managed
def test_managed_by_says_whose_a_job_is(space: Space) -> None:
    other = space.create(mpi_manifest("other", managedBy="kueue.x-k8s.io/multikueue"))
    start(space, "m", 1, managedBy="kubeflow.org/mpi-operator")
    start(space, "n", 1, managedBy="training.corro.dev/operator")
    assert not other.status()
    assert not other.all_objects()


# mpijob different: v2.managedBy-fixed
def test_managed_only_takes_jobs_that_name_corro(bare_space: Space) -> None:
    options = ("--mpijob", "managed")
    with OperatorProcess(bare_space.kubeconfig, bare_space.name, *options).begin() as operator:
        unset = bare_space.create(mpi_manifest("unset"))
        theirs = bare_space.create(mpi_manifest("theirs", managedBy="kubeflow.org/mpi-operator"))
        start(bare_space, "ours", 1, managedBy="training.corro.dev/operator")
        for job in (unset, theirs):
            assert not job.status()
            assert not job.all_objects()
        operator.stop()


# mpijob different: gang-native
@pytest.mark.usefixtures("h100_nodes")
def test_a_gang_of_the_cluster_is_used(bare_space: Space) -> None:
    options = ("--gang-scheduling", "native")
    with OperatorProcess(bare_space.kubeconfig, bare_space.name, *options).begin() as operator:
        job = bare_space.apply(MANIFESTS / "mpijob_v2beta1_gang.yaml")
        job.patch({"runPolicy": {"suspend": False}})
        job.wait_for_running({"resnet-gang-worker-0", "resnet-gang-worker-1"})
        [group] = job.objects("PodGroup").values()
        # The launcher waits for the workers, so the gang does not wait for it.
        assert group["spec"]["schedulingPolicy"]["gang"]["minCount"] == 2
        for pod in job.pods().values():
            assert pod["spec"]["schedulingGroup"] == {"podGroupName": "resnet-gang-2"}
        assert "schedulingGroup" not in job.pods("head")["resnet-gang-head"]["spec"]
        operator.stop()
