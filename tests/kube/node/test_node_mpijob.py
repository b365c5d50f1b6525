"""The MPIJob of a Horovod user on a real node: its pods train, without sshd, and survive losses."""

from __future__ import annotations

import time

import pytest
from harness import wait_until
from jobs import Job, Space
from node_jobs import LONG, ROOT, SCRIPT, bring_tensorflow, launcher, users_job
from pods_seen import kill_rank, launcher_of, log, measured, wait_for_line, wait_for_ranks

NAME = "tensorflow-mnist"
WORKERS = {f"{NAME}-worker-0", f"{NAME}-worker-1"}
# The image's Python is Debian's, as that of this environment.
TENSORFLOW = ROOT / ".venv-tensorflow/lib/python3.11/site-packages"


def start(space: Space, grace: int = 30) -> tuple[Job, str]:
    """A job that trains for long, and its launcher's pod, once ranks step."""
    job = space.apply(users_job(*LONG, grace=grace))
    pod = launcher_of(job)
    wait_for_line(space, pod, " step 100/")
    return job, pod


def said_by_launcher(space: Space, job: Job) -> list[str]:
    job.wait_for_state("Succeeded")
    return [each.text for each in log(space, launcher_of(job))]


def test_the_manifest_trains_as_it_is(space: Space) -> None:
    begun = time.time()
    job = space.apply(users_job())
    measured("MPIJob applied -> mpirun's ranks running", wait_for_ranks(job) - begun)
    assert set(job.pods()) == WORKERS
    said = said_by_launcher(space, job)
    [last] = [line for line in said if line.startswith("demo: ")]
    assert float(last.split("accuracy=")[1].split()[0]) > 0.8
    assert "ranks=2 " in last
    assert job.status().get("restarts", 0) == 0
    wait_until(lambda: not job.pods(), "the end of workers, by its cleanPodPolicy Running")


@pytest.mark.skipif(not TENSORFLOW.exists(), reason="make test-setup makes .venv-tensorflow")
def test_the_manifest_trains_with_tensorflow(space: Space) -> None:
    """Its own script, examples/tensorflow_mnist.py, with a session and Horovod's hook."""
    manifest = users_job("--steps", "400")
    bring_tensorflow(manifest, TENSORFLOW)
    said = said_by_launcher(space, space.apply(manifest))
    [last] = [line for line in said if line.startswith("demo: ")]
    assert float(last.split("accuracy=")[1].split()[0]) > 0.7
    assert last.endswith(" ranks=2 steps=200")


def test_a_deleted_worker_is_replaced_and_ranks_step_again(space: Space) -> None:
    job, pod = start(space, grace=1)
    before = job.pods("launcher")[pod]["status"]["containerStatuses"][0]["containerID"]
    begun = time.time()
    space.api.delete(space.path("Pod", f"{NAME}-worker-1"))
    job.wait_for_running({f"{NAME}-worker-0", f"{NAME}-worker-1-g1"})
    again = wait_for_ranks(job)
    step = wait_for_line(space, pod, " step ", after=again)
    measured("worker pod deleted -> ranks step again", step.when - begun)
    # In the same container: no exit of the launcher, no back-off of its Job.
    after = job.pods("launcher")[pod]["status"]["containerStatuses"][0]["containerID"]
    assert after == before
    assert job.status()["restartCounts"]["lostPod"] == 1


def test_a_killed_rank_ends_the_launcher_and_its_job_starts_it_again(space: Space) -> None:
    job, pod = start(space)
    uids = {name: each["metadata"]["uid"] for name, each in job.pods().items()}
    begun = time.time()
    kill_rank(job.pods()[f"{NAME}-worker-1"])

    def restarts() -> bool:
        [status] = job.pods("launcher")[pod]["status"]["containerStatuses"]
        return bool(status["restartCount"] == 1 and status["state"].get("running"))

    wait_until(restarts, "the launcher's container once more", 120)
    step = wait_for_line(space, pod, " step ", after=begun)
    measured("rank killed -> ranks step again", step.when - begun)
    assert {name: each["metadata"]["uid"] for name, each in job.pods().items()} == uids


def test_horovods_own_ssh_call_reaches_a_worker(space: Space) -> None:
    manifest = users_job()
    call = "ssh -o PasswordAuthentication=no -o StrictHostKeyChecking=no"
    script = f"command -v ssh; {call} {NAME}-worker-1 'hostname; exit 7'; echo status $?"
    launcher(manifest).update(command=["sh", "-c"], args=[script])
    said = said_by_launcher(space, space.apply(manifest))
    assert said[-3:] == ["/corro/bin/ssh", f"{NAME}-worker-1", "status 7"], said


def test_horovodrun_trains_over_the_workers(space: Space) -> None:
    manifest = users_job()
    hosts = f"{NAME}-worker-0:1,{NAME}-worker-1:1"
    words = ["horovodrun", "-np", "2", "-H", hosts, "python", SCRIPT, "--epochs", "1"]
    launcher(manifest).update(command=words, args=[])
    job = space.apply(manifest)
    wait_for_ranks(job)
    assert "ranks=2 " in "\n".join(said_by_launcher(space, job))
