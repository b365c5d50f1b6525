"""`corro operator` where something goes wrong: its leader, names, quotas, manifests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import Plane, wait_until
from jobs import LABEL, Job, Space, corro_manifest, mpi_manifest, name_of
from operator_process import OperatorProcess

Object = dict[str, Any]


def launch(space: Space) -> OperatorProcess:
    return OperatorProcess(space.kubeconfig, space.name)


def start(space: Space, name: str, target: int = 2) -> Job:
    job = space.corro_job(name, target)
    job.wait_for_running(job.workers(*[0] * target))
    return job


# --- Leaders -------------------------------------------------------------------------------------


def test_another_leads_at_once_when_the_leader_ends(bare_space: Space) -> None:
    with launch(bare_space).begin() as first, launch(bare_space) as second:
        job = start(bare_space, "a")
        wait_until(lambda: second.page("/readyz")[0] == 200, "a follower's readiness")
        assert not second.log("leads")
        assert second.metrics()["corro_operator_leads"] == 0
        first.stop()
        second.begin()
        assert first.log("follows")
        bare_space.api.delete(bare_space.path("Pod", "a-worker-0-g0"))
        assert job.wait_for_running(job.workers(1, 0))["restarts"] == 1
        second.stop()


def test_another_leads_when_the_leader_is_silent_and_when_it_is_dead(bare_space: Space) -> None:
    """A Lease lasts 15 s. A leader that was away meanwhile has nothing more to say."""
    with launch(bare_space).begin() as first, launch(bare_space) as second:
        job = start(bare_space, "a")
        with first.paused():
            bare_space.api.delete(bare_space.path("Pod", "a-worker-0-g0"))
            second.begin()
            job.wait_for_running(job.workers(1, 0))
        first.wait_for("follows")
        assert first.metrics()["corro_operator_leads"] == 0
        second.kill()
        bare_space.api.delete(bare_space.path("Pod", "a-worker-1-g0"))
        first.wait_for("leads", count=2)
        status = job.wait_for_running(job.workers(1, 1))
        assert status["restartCounts"]["lostPod"] == 2
        first.stop()


@pytest.fixture
def account(bare_space: Space) -> Iterator[str]:
    """A service account that may do everything, as long as its tokens are taken."""
    space, name = bare_space.name, f"{bare_space.name}-all"
    bare_space.plane.kubectl("create", "serviceaccount", "all", "-n", space)
    binding = ["clusterrolebinding", name]
    bare_space.plane.kubectl(
        "create", *binding, "--clusterrole=cluster-admin", f"--serviceaccount={space}:all"
    )
    yield "all"
    bare_space.plane.kubectl("delete", *binding)


def renewed(space: Space) -> datetime:
    """When its leader has renewed the Lease, by the leader's clock."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{space.name}/leases"
    [lease] = space.api.get(leases)["items"]
    return datetime.fromisoformat(lease["spec"]["renewTime"])


def test_an_operator_whose_clock_is_an_hour_ahead_leads_and_hands_over(bare_space: Space) -> None:
    """Leases rest on monotonic clocks; a job's way is the same, and goes on under a right clock."""
    ahead = OperatorProcess(bare_space.kubeconfig, bare_space.name, hours_ahead=1)
    with ahead.begin() as first, launch(bare_space) as second:
        told = datetime.fromisoformat(first.wait_for("leads")["time"])
        assert (told - datetime.now(timezone.utc)).total_seconds() > 3000
        job = start(bare_space, "a")
        bare_space.api.delete(bare_space.path("Pod", "a-worker-0-g0"))
        job.wait_for_running(job.workers(1, 0))
        begun = renewed(bare_space)  # Longer than a Lease lasts.
        wait_until(lambda: renewed(bare_space) - begun > timedelta(seconds=20), "renewals")
        assert not second.log("leads")
        assert not first.log("follows")
        first.stop()
        second.begin()
        bare_space.api.delete(bare_space.path("Pod", "a-worker-1-g0"))
        status = job.wait_for_running(job.workers(1, 1))
        assert status["restartCounts"] == {"lostPod": 2}
        second.stop()


def test_a_token_that_expired_is_read_again(
    bare_space: Space, account: str, tmp_path: Path
) -> None:
    """The kubelet writes a new token over the old one before that ends, or a little late."""
    kubectl, space = bare_space.plane.kubectl, bare_space.name
    token = tmp_path / "token"

    def write_token(bound_to: str) -> str:
        """One that ends with the Secret."""
        kubectl("create", "secret", "generic", bound_to, "-n", space)
        bound = ["--bound-object-kind=Secret", f"--bound-object-name={bound_to}"]
        text = kubectl("create", "token", account, "-n", space, *bound).strip()
        token.write_text(text)
        return text

    def is_over(text: str) -> bool:
        review = {"spec": {"token": text}}
        answer = bare_space.api.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
        return not answer["status"].get("authenticated")

    first = write_token("first")
    config = yaml.safe_load(bare_space.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"tokenFile": str(token)}}]
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    with OperatorProcess(tmp_path / "config", space).begin() as operator:
        start(bare_space, "a")
        kubectl("delete", "secret", "first", "-n", space)
        wait_until(lambda: is_over(first), "the token's end")
        job = bare_space.corro_job("b")
        operator.wait_for("an action did not end well")
        write_token("second")
        job.wait_for_running(job.workers(0, 0))
        operator.stop()


def test_a_loss_while_no_operator_runs_is_seen_afterwards(bare_space: Space) -> None:
    with launch(bare_space).begin() as operator:
        job = start(bare_space, "a")
        job.wait(lambda s: "worker-1" in (s.get("members") or {}), "the workers seen")
        operator.stop()
    bare_space.api.delete(bare_space.path("Pod", "a-worker-1-g0"))
    wait_until(lambda: set(job.pods()) == {"a-worker-0-g0"}, "the worker gone")
    with launch(bare_space).begin() as operator:
        status = job.wait_for_running(job.workers(0, 1))
        assert status["restartCounts"]["lostPod"] == 1
        told = "lostPod: a-worker-1-g0: vanished; restart 1 of at most 1000"
        job.wait_until(lambda: any(e["note"].startswith(told) for e in job.events()), told)
        operator.stop()


# --- What stands in the way ----------------------------------------------------------------------


def bystander(kind: str, name: str) -> Object:
    """A user's object."""
    specs: Object = {
        "Service": {"spec": {"ports": [{"port": 80}]}},
        "ConfigMap": {"data": {"mine": "yes"}},
        "Pod": {"spec": {"containers": [{"name": "a", "image": "b"}]}},
        "NetworkPolicy": {"spec": {"podSelector": {}}},
    }
    base: Object = {"metadata": {"name": name, "annotations": {"mine": "yes"}}}
    base |= specs[kind]
    return base


# mpijob same: foreign-objects
# mpijob different: foreign-condition
def test_names_that_are_taken_block_a_job_until_they_are_free(space: Space) -> None:
    taken = {
        "a": ("Service", "a-head"),
        "b": ("Pod", "b-worker-1-g0"),
        "c": ("NetworkPolicy", "c"),
        "m": ("ConfigMap", "m-config"),
    }
    for kind, name in taken.values():
        space.api.post(space.path(kind), bystander(kind, name))
    jobs = {
        name: space.create(mpi_manifest(name) if name == "m" else corro_manifest(name))
        for name in taken
    }
    for name, job in jobs.items():
        told = job.wait_for_condition("Pending", "ErrResourceExists")
        kind, object_ = taken[name]
        assert f'Resource "{object_}" of Kind "{kind}" already exists' in told["message"]
    for kind, name in taken.values():
        left = space.api.get(space.path(kind, name))
        assert left["metadata"]["annotations"]["mine"] == "yes"
        assert "ownerReferences" not in left["metadata"]
        assert "deletionTimestamp" not in left["metadata"]
        space.api.delete(space.path(kind, name))
    for name, job in jobs.items():
        status = job.wait_for_state("Running")
        assert status.get("restarts", 0) == 0
        assert job.condition("Pending")["status"] == "False"
        workers = {f"{name}-worker-{i}" for i in range(2)} if name == "m" else job.workers(0, 0)
        assert set(job.pods()) == workers


def test_an_object_with_our_label_alone_is_not_ours(space: Space) -> None:
    job = space.corro_job("a", suspend=True)
    job.wait_for_state("Suspended")
    pod = bystander("Pod", "a-worker-0-g0")
    labels = {"job-uid": job.uid, "role": "worker", "index": "0", "generation": "0"}
    pod["metadata"]["labels"] = {LABEL + key: value for key, value in labels.items()}
    space.api.post(space.path("Pod"), pod)
    job.patch({"suspend": False})
    told = job.wait_for_condition("Pending", "ErrResourceExists")
    assert 'Resource "a-worker-0-g0"' in told["message"]
    space.api.delete(space.path("Pod", "a-worker-0-g0"))
    job.wait_for_state("Running")


def test_a_quota_that_is_used_up_is_told(space: Space) -> None:
    quotas = f"/api/v1/namespaces/{space.name}/resourcequotas"
    space.api.post(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}})
    wait_until(
        lambda: space.api.get(f"{quotas}/few").get("status", {}).get("hard"), "the quota in force"
    )
    job = space.corro_job("a", 3)
    told = job.wait_for_condition("Pending", "CreateRefused")
    assert "exceeded quota: few" in told["message"]
    assert "tried again at" in told["message"]
    space.api.patch(f"{quotas}/few", {"spec": {"hard": {"pods": "10"}}})
    status = job.wait_for_running(job.workers(0, 0, 0))
    assert status.get("restarts", 0) == 0


def test_a_pod_that_the_api_server_refuses_is_told_with_its_path(space: Space) -> None:
    manifest = corro_manifest("a", 1)
    container = manifest["spec"]["worker"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "nowhere", "mountPath": "/data"}]
    job = space.create(manifest)
    told = job.wait_for_condition("Pending", "CreateInvalid")
    assert 'spec.containers[0].volumeMounts[0].name: Not found: "nowhere"' in told["message"]
    del container["volumeMounts"]
    mend(job, manifest)


def mend(job: Job, manifest: Object) -> None:
    """A template may be changed while the job is suspended."""
    job.patch({"suspend": True})
    job.patch({"worker": {"template": manifest["spec"]["worker"]["template"]}})
    job.patch({"suspend": False})
    job.wait_for_running(job.workers(0))


def test_a_misspelt_field_of_a_template_is_told_with_its_path(space: Space) -> None:
    manifest = corro_manifest("a", 1)
    pod = manifest["spec"]["worker"]["template"]["spec"]
    pod["nodeSelecter"] = {"accelerator": "h100"}
    job = space.create(manifest)
    told = job.wait_for_condition("Pending", "CreateInvalid")
    assert 'unknown field "spec.nodeSelecter"' in told["message"]
    assert "or once the job is changed" in told["message"]
    pod["nodeSelecter"] = None  # A patch takes it away.
    mend(job, manifest)


def test_a_misspelt_field_of_an_mpijob_is_dropped_as_ever(space: Space) -> None:
    manifest = mpi_manifest("m", 1)
    roles = manifest["spec"]["mpiReplicaSpecs"]
    roles["Worker"]["template"]["spec"]["nodeSelecter"] = {"accelerator": "h100"}
    space.create(manifest).wait_for_running({"m-worker-0"})


def test_a_job_without_a_command_is_told_so(space: Space) -> None:
    manifest = corro_manifest("a", 1)
    container = manifest["spec"]["worker"]["template"]["spec"]["containers"][0]
    command = container.pop("command")
    job = space.create(manifest)
    told = job.wait_for_condition("Pending", "ValidationError")
    path = "spec.worker.template.spec.containers[0].command"
    assert told["message"] == f"{path}: is needed: the image's own cannot be known"
    assert not job.all_objects()
    container["command"] = command
    mend(job, manifest)


def test_a_namespace_that_goes_takes_its_jobs_along(bare_space: Space, crds: Plane) -> None:
    name = f"doomed-{time.monotonic_ns()}"
    crds.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    doomed = Space(crds, name)
    lease = bare_space.name
    with OperatorProcess(doomed.kubeconfig, name, lock_space=lease).begin() as operator:
        start(doomed, "a")
        crds.api.delete(f"/api/v1/namespaces/{name}")
        wait_until(lambda: not is_there(crds, name), "its end")
        key = 'corro_operator_jobs{kind="CorroJob"'
        wait_until(
            lambda: not [k for k in operator.metrics() if k.startswith(key)], "the job forgotten"
        )
        operator.stop()


def is_there(plane: Plane, namespace: str) -> bool:
    spaces = plane.api.get("/api/v1/namespaces")["items"]
    return namespace in {name_of(space) for space in spaces}


# --- No Lease ------------------------------------------------------------------------------------


def as_it_is(config: Object) -> None:
    pass


def wrong_server(config: Object) -> None:
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"


def wrong_token(config: Object) -> None:
    config["users"][0]["user"] = {"token": "nobody's"}


@pytest.mark.parametrize(
    ("change", "lock_space", "words"),
    [
        (as_it_is, "nowhere", 'namespaces "nowhere" not found'),
        (wrong_server, "default", "127.0.0.1:1"),
        (wrong_token, "default", "Unauthorized"),
    ],
)
def test_who_cannot_take_part_in_the_election_says_why_and_is_not_ready(
    bare_space: Space, tmp_path: Path, change: Callable[[Object], None], lock_space: str, words: str
) -> None:
    config = yaml.safe_load(Path(bare_space.kubeconfig).read_text())
    change(config)
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    with OperatorProcess(file, bare_space.name, lock_space=lock_space) as operator:
        assert operator.page("/readyz")[0] == 200, "it waits for a Lease's duration"
        line = operator.wait_for("cannot take part in the election")
        assert (line["level"], words in line["why"]) == ("warning", True), line
        wait_until(lambda: operator.page("/readyz")[0] == 503, "unreadiness")
        assert words in operator.page("/readyz")[1]
        assert operator.page("/healthz")[0] == 200
        operator.stop()
