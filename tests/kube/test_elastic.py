"""Elastic CorroJobs: what the operator makes and lets alone, and heads and agents with its gifts.

The pods are played (pod_life.py). Head and agents of some of them run here as processes, with the
variables, keys and rights of their pods.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT, service_account_kubeconfig, wait_until
from jobs import Job, Object, Space, corro_manifest
from operator_process import OperatorProcess

sys.path.insert(0, str(ROOT / "python/tests"))

from etcd_server import free_ports
from said import PATIENCE, WORKER, Said

PROGRAM = ROOT / "build/release/pod/corro"


def elastic_manifest(name: str, target: int = 2, fewest: int = 1) -> Object:
    manifest = corro_manifest(name, target)
    manifest["spec"]["worker"]["min"] = fewest
    manifest["spec"]["gang"] = "Off"
    return manifest


def start(space: Space, target: int = 2) -> Job:
    job = space.create(elastic_manifest("a", target))
    job.wait_for_running(job.workers(*[0] * target))
    return job


def uids(job: Job) -> dict[str, str]:
    pods = job.pods() | job.pods("head")
    return {name: pod["metadata"]["uid"] for name, pod in pods.items()}


# --- What the operator lets alone ----------------------------------------------------------------


def test_all_of_an_elastic_job_is_its_own(space: Space) -> None:
    job = start(space)
    rights = f"a-{job.uid}"
    assert job.all_objects() == {
        "Pod": ["a-head", "a-worker-0-g0", "a-worker-1-g0"],
        "Service": ["a", "a-head"],
        "ConfigMap": [f"{rights}-progress", f"{rights}-record"],
        "Secret": [rights],
        "NetworkPolicy": ["a"],
        "ServiceAccount": [rights],
        "Role": [rights],
        "RoleBinding": [rights],
        "Lease": [f"{rights}-head"],
    }
    job.delete()
    job.wait_for_nothing()


def test_scale_adds_and_takes_pods_and_touches_no_other(space: Space) -> None:
    job = start(space)
    before = uids(job)
    scale = space.api.get(f"{job.path}/scale")
    assert scale["status"]["selector"] == job.status()["selector"]
    selected = space.items("Pod", labelSelector=scale["status"]["selector"])
    assert set(selected) == {"a-worker-0-g0", "a-worker-1-g0"}
    space.plane.kubectl("scale", "-n", space.name, "corrojob/a", "--replicas=4")
    job.wait_for_running(job.workers(0, 0, 0, 0))
    assert uids(job).items() >= before.items()
    space.plane.kubectl("scale", "-n", space.name, "corrojob/a", "--replicas=1")
    job.wait_for_running(job.workers(0))
    assert uids(job).items() <= before.items()
    assert job.status()["restarts"] == 0
    said = space.plane.kubectl("scale", "-n", space.name, "corrojob/a", "--replicas=17", fails=True)
    assert "worker.target is more than worker.max" in said


def agent_images(job: Job) -> dict[str, str]:
    """Of the pods that live."""
    specs = {name: pod["spec"] for name, pod in (job.pods() | job.pods("head")).items()}
    return {
        name: (s.get("initContainers") or s["containers"])[-1]["image"] for name, s in specs.items()
    }


def test_a_job_keeps_its_agents_when_the_operator_is_upgraded(bare_space: Space) -> None:
    space = bare_space
    images = ("corro-agent:1", "corro-agent:2")
    for image in images:
        with OperatorProcess(space.kubeconfig, space.name, "--agent-image", image) as operator:
            operator.begin()
            if image == images[0]:
                job = start(space)
                operator.stop()
                continue
            space.command("a-worker-1-g0", "evict")
            job.wait_for_running(job.workers(0, 1))
            space.command("a-head", "evict")
            job.wait_for_running({"a-head-g1"}, "head")
            assert set(agent_images(job).values()) == {images[0]}
            job.patch({"suspend": True})
            job.wait_for_no_pods()
            job.patch({"suspend": False})
            job.wait_for_running(job.workers(1, 2))
            assert set(agent_images(job).values()) == {images[1]}
            operator.stop()


def test_what_the_head_tells_of_the_ranks_is_in_the_status(space: Space) -> None:
    job = start(space)
    checkpoint = {
        "step": 40,
        "time": "2026-11-28T10:00:00.000000Z",
        "path": "/checkpoint/run/step-40",
    }
    told = {
        "epoch": 1,
        "ranks": 2,
        "step": 45,
        "stepsPerSecond": 2.5,
        "plan": "two stages",
        "lastCheckpoint": checkpoint,
    }
    said = {"data": {"progress": json.dumps(told | {"changes": []})}}
    space.api.patch(space.path("ConfigMap", f"a-{job.uid}-progress"), said)
    status = job.wait(lambda status: "progress" in status, "progress")
    assert status["progress"] == told
    shown = space.plane.kubectl("get", "-n", space.name, "corrojob/a", "-o", "wide").splitlines()
    cells = dict(zip(re.split(" {2,}", shown[0]), re.split(" {2,}", shown[1]), strict=False))
    assert (cells["STEP"], cells["PLAN"], cells["CHECKPOINT"]) == ("45", "two stages", "40")


def test_an_autoscaler_sets_the_target(space: Space) -> None:
    job = start(space)
    before = uids(job)
    target = {"apiVersion": "training.corro.dev/v1", "kind": "CorroJob", "name": "a"}
    autoscaler = {
        "metadata": {"name": "a"},
        "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 4},
    }
    space.api.post(
        f"/apis/autoscaling/v2/namespaces/{space.name}/horizontalpodautoscalers", autoscaler
    )
    job.wait_for_running(job.workers(0, 0, 0))
    assert uids(job).items() >= before.items()


def test_a_lost_worker_and_a_lost_head_are_replaced_alone(space: Space) -> None:
    job = start(space)
    before = uids(job)
    for pod in ("a-worker-1-g0", "a-head"):
        space.api.delete(space.path("Pod", pod))
    job.wait_for_running(job.workers(0, 1))
    job.wait_for_running({"a-head-g1"}, role="head")
    assert uids(job)["a-worker-0-g0"] == before["a-worker-0-g0"]
    assert job.status()["restartCounts"] == {"lostPod": 2}
    reasons = [event["reason"] for event in job.events()]
    assert "CorroJobReplacing" in reasons
    assert "CorroJobRestarting" not in reasons


def test_a_quota_that_refuses_a_worker_is_told_and_the_job_runs(space: Space) -> None:
    quotas = f"/api/v1/namespaces/{space.name}/resourcequotas"
    space.api.post(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "3"}}})
    wait_until(
        lambda: space.api.get(f"{quotas}/few").get("status", {}).get("hard"), "the quota in force"
    )
    job = space.create(elastic_manifest("a", 3))
    job.wait_until(
        lambda: "2 of 3 workers run" in job.condition("Running").get("message", ""), "two workers"
    )
    told = job.condition("Running")
    assert told["status"] == "True"
    assert "exceeded quota: few" in told["message"]
    space.api.patch(f"{quotas}/few", {"spec": {"hard": {"pods": "10"}}})
    job.wait_for_running(job.workers(0, 0, 0))
    assert "workers run" not in job.condition("Running")["message"]


def test_the_heads_end_is_the_jobs(space: Space) -> None:
    job = start(space)
    space.command("a-head", "exit=3", "corro: the job has failed: ValueError (rank 0 on worker-0)")
    job.wait_for_running(job.workers(1, 1))
    job.wait_for_running({"a-head-g1"}, role="head")
    assert job.status()["restartCounts"] == {"userError": 1}
    space.command("a-head-g1", "exit=0")
    job.wait_for_state("Succeeded")


def test_that_too_few_workers_are_left_is_no_failure_of_the_users(space: Space) -> None:
    manifest = elastic_manifest("a")
    manifest["spec"]["restart"] = {"userError": {"limit": 0}}
    job = space.create(manifest)
    job.wait_for_running(job.workers(0, 0))
    space.command("a-head", "exit=75", "corro: too few workers are left: all ranks have left")
    job.wait_for_running(job.workers(1, 1))
    job.wait_for_running({"a-head-g1"}, role="head")
    assert job.status()["restartCounts"] == {"lostPod": 1}


def test_a_head_that_was_killed_is_replaced_alone(space: Space) -> None:
    manifest = elastic_manifest("a")
    manifest["spec"]["restart"] = {"userError": {"limit": 0}, "outOfMemory": {"limit": 0}}
    job = space.create(manifest)
    job.wait_for_running(job.workers(0, 0))
    before = uids(job)
    space.command("a-head", "oom")
    job.wait_for_running({"a-head-g1"}, role="head")
    after = uids(job)
    assert {name: after[name] for name in job.workers(0, 0)} == {
        name: before[name] for name in job.workers(0, 0)
    }
    assert job.status()["restartCounts"] == {"lostPod": 1}


# --- Heads and agents ----------------------------------------------------------------------------


class Processes(Said):
    """Processes of pods that are played."""

    def __init__(self, job: Job, folder: Path) -> None:
        super().__init__(folder)
        self.job = job
        self.plane = job.space.plane
        self.port = free_ports(1)[0]
        self.started: list[subprocess.Popen[bytes]] = []

    def pod(self, name: str) -> Object:
        return dict(self.job.objects("Pod")[name])

    def token(self, member: str) -> Path:
        folder = self.folder / f"token-{member}"
        folder.mkdir(exist_ok=True)
        secret = self.job.objects("Secret")[f"{self.job.name}-{self.job.uid}"]
        file = folder / "key"
        file.touch(mode=0o600)
        file.write_bytes(base64.b64decode(secret["data"][member]))
        return folder

    def start(self, pod: str, *words: str, **more: str) -> subprocess.Popen[bytes]:
        """Runs corro with what the pod's container has been told."""
        told = {
            each["name"]: each["value"] for each in self.pod(pod)["spec"]["containers"][0]["env"]
        }
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CORRO_")}
        own = {
            "CORRO_TOKEN": str(self.token(told["CORRO_MEMBER"])),
            "CORRO_TERMINATION_LOG": "/dev/null",
            "TMPDIR": str(self.folder),
        }
        with (self.folder / f"{pod}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(PROGRAM), *words],
                env=clean | told | own | more,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def head(self, pod: str) -> subprocess.Popen[bytes]:
        """With the token of its account, and no other right."""
        account = self.pod(pod)["spec"]["serviceAccountName"]
        config = service_account_kubeconfig(
            self.plane, self.folder / f"{pod}.kubeconfig", account, self.job.space.name
        )
        return self.start(pod, "head", "--listen", f"127.0.0.1:{self.port}", KUBECONFIG=str(config))

    def worker(self, pod: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(WORKER), str(self.said)]
        head = f"127.0.0.1:{self.port}"
        return self.start(pod, "agent", "--pod", "--", *command, CORRO_HEAD=head)

    def log(self, pod: str) -> str:
        return (self.folder / f"{pod}.log").read_text(errors="replace")

    def logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in self.folder.glob("*.log"))

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def processes(space: Space, tmp_path: Path) -> Iterator[Processes]:
    if not PROGRAM.exists():
        pytest.skip("the pods' program is not built")
    started = Processes(start(space), tmp_path)
    yield started
    started.end()


def over(process: subprocess.Popen[bytes]) -> int:
    return process.wait(timeout=PATIENCE)


def test_ranks_step_on_while_a_head_is_replaced_that_has_its_own_rights_alone(
    processes: Processes,
) -> None:
    job = processes.job
    head = processes.head("a-head")
    workers = [processes.worker(pod) for pod in ("a-worker-0-g0", "a-worker-1-g0")]
    processes.size(2)
    lease = job.objects("Lease")[f"a-{job.uid}-head"]["spec"]
    assert lease["holderIdentity"]
    # Its pod is deleted, and the operator makes another one.
    job.space.api.delete(job.space.path("Pod", "a-head"))
    os.kill(head.pid, signal.SIGTERM)
    assert over(head) == 128 + signal.SIGTERM
    processes.steps(20)
    job.wait_for_running({"a-head-g1"}, role="head")
    head = processes.head("a-head-g1")
    wait_until(lambda: "leads in term" in processes.log("a-head-g1"), "the next head", PATIENCE)
    processes.steps(5)
    assert len(processes.facts()) == 2, "no process was started again"
    # A lost worker is replaced, and its process takes part.
    job.space.api.delete(job.space.path("Pod", "a-worker-1-g0"))
    os.killpg(workers[1].pid, signal.SIGKILL)
    processes.size(1)
    job.wait_for_running(job.workers(0, 1))
    workers[1] = processes.worker("a-worker-1-g1")
    processes.size(2)
    processes.finish()
    assert over(head) == 0, processes.logs()
    assert [over(worker) for worker in workers] == [0, 0], processes.logs()


def test_a_head_that_waits_for_workers_says_that_nobody_steps_in_its_round(
    processes: Processes,
) -> None:
    job = processes.job
    stale = {"round": "7", "epoch": 3, "ranks": 2, "step": 45, "stepsPerSecond": 49.3}
    said = {"data": {"progress": json.dumps(stale)}}
    job.space.api.patch(job.space.path("ConfigMap", f"a-{job.uid}-progress"), said)
    processes.head("a-head")
    status = job.wait(lambda status: "ranks" in status.get("progress", {}), "progress")
    assert status["progress"] == {"epoch": 0, "ranks": 0, "step": 0}
    told = job.objects("ConfigMap")[f"a-{job.uid}-progress"]["data"]["progress"]
    assert json.loads(told)["round"] == "0"


def test_a_head_waits_for_rights_that_it_has_not(processes: Processes) -> None:
    space = processes.job.space
    name = processes.pod("a-head")["spec"]["serviceAccountName"]
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space.name}/roles/{name}"
    rules = space.api.get(roles)["rules"]
    space.api.patch(roles, {"rules": []})
    head = processes.head("a-head")
    wait_until(lambda: "no right to get lease" in processes.log("a-head"), "a refusal", PATIENCE)
    space.api.patch(roles, {"rules": rules})
    workers = [processes.worker(pod) for pod in ("a-worker-0-g0", "a-worker-1-g0")]
    processes.size(2)
    # A leader is refused, too, and its ranks step on.
    space.api.patch(roles, {"rules": []})
    wait_until(lambda: "is lost: " in processes.log("a-head"), "a lead that is lost", PATIENCE)
    processes.steps(5)
    space.api.patch(roles, {"rules": rules})
    wait_until(lambda: "leads in term 2" in processes.log("a-head"), "a lead", PATIENCE)
    processes.steps(5)
    processes.finish()
    assert over(head) == 0, processes.logs()
    assert [over(worker) for worker in workers] == [0, 0], processes.logs()
    assert len(processes.facts()) == 2, "no process was started again"
    assert processes.log("a-head").count("no right to get lease") == 2, "each is said once"


def test_a_head_may_touch_what_is_its_own_alone(processes: Processes) -> None:
    job, space = processes.job, processes.job.space
    account = processes.pod("a-head")["spec"]["serviceAccountName"]
    who = f"system:serviceaccount:{space.name}:{account}"

    def may(verb: str, what: str) -> bool:
        try:
            said = space.plane.kubectl("auth", "can-i", verb, what, "-n", space.name, "--as", who)
        except AssertionError:
            return False
        return said.strip() == "yes"

    own = {
        f"leases/a-{job.uid}-head": ("get", "update"),
        f"configmaps/a-{job.uid}-record": ("get", "update", "patch"),
        f"configmaps/a-{job.uid}-progress": ("get", "update", "patch"),
    }
    for what, verbs in own.items():
        assert all(may(verb, what) for verb in verbs), what
        assert not may("delete", what)
    for verb, what in {
        ("get", "secrets"),
        ("list", "configmaps"),
        ("update", "leases/other"),
        ("create", "pods"),
        ("patch", "corrojobs.training.corro.dev"),
    }:
        assert not may(verb, what), (verb, what)
