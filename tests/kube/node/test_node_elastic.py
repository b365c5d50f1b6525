"""An elastic CorroJob on a real node: killed, scaled and drained while it counts its samples."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from jobs import Job, Space
from node_jobs import IMAGE, REQUESTS
from pods_seen import (
    MEASURED,
    head_of,
    kill_rank,
    log,
    measured,
    processes_of,
    start_of,
    wait_for_line,
)

HERE = Path(__file__).resolve().parent
SCRIPT = "/examples/script/elastic_training.py"
EPOCHS = 12
SHORT = 4
PATTERN = r"step (\d+) of (\d+) ranks"


def add_script(space: Space) -> None:
    """A ConfigMap that brings elastic_training.py to pods."""
    source = (HERE / "elastic_training.py").read_text()
    maps = f"/api/v1/namespaces/{space.name}/configmaps"
    space.api.post(maps, {"metadata": {"name": "script"}, "data": {"elastic_training.py": source}})


def create(space: Space, epochs: int = EPOCHS) -> Job:
    """A job of two workers, of which one is enough, and up to four take part.

    Its script may not fail.
    """
    add_script(space)
    container = {
        "name": "train",
        "image": IMAGE,
        "command": ["python", SCRIPT, str(epochs)],
        "resources": {"requests": REQUESTS, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "script", "mountPath": "/examples/script"}],
    }
    pod = {
        "containers": [container],
        "terminationGracePeriodSeconds": 20,
        "volumes": [{"name": "script", "configMap": {"name": "script"}}],
    }
    worker = {"target": 2, "min": 1, "max": 4, "template": {"spec": pod}}
    return space.create(
        {
            "apiVersion": "training.corro.dev/v1",
            "kind": "CorroJob",
            "metadata": {"name": "elastic"},
            "spec": {"worker": worker, "gang": "Off", "restart": {"userError": {"limit": 0}}},
        }
    )


def wait_for_size(space: Space, head: str, ranks: int, after: float) -> float:
    return wait_for_line(space, head, rf"step \d+ of {ranks} ranks", after).when


def wait_for_joined(space: Space, head: str, ranks: int, after: float) -> float:
    """When so many step in an epoch that has begun since then, with one that is new.

    Lines of as many ranks may be of an epoch before.
    """
    epoch = wait_for_line(space, head, rf"{ranks} ranks go on, 1 of them new", after).when
    return wait_for_size(space, head, ranks, epoch)


def newest_head(job: Job) -> str:
    """The name of the head that was made last, ended or not."""
    made = {name: pod for name, pod in job.objects("Pod").items() if "-head" in name}
    return max(made, key=lambda name: str(made[name]["metadata"]["creationTimestamp"]))


def evict(space: Space, pod: str) -> None:
    """As a drain does."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction"}
    metadata = {"name": pod, "namespace": space.name}
    space.api.post(space.path("Pod", pod) + "/eviction", eviction | {"metadata": metadata})


def check_result(space: Space, head: str, epochs: int) -> None:
    """That the ranks have counted each sample once in each epoch, and have learnt."""
    last = [line.text for line in log(space, head) if "samples" in line.text]
    found = re.search(r"samples (\d+) epochs (\d+) accuracy (\S+)", last[-1])
    assert found
    assert int(found[1]) == epochs * 60_000, "each sample once in each epoch"
    assert float(found[3]) > 0.8


def tell_pause(space: Space, head: str, what: str, begun: float, until: float) -> None:
    """The longest time between two steps of rank 0 since something was done."""
    lines = [line for line in log(space, head) if begun < line.when <= until]
    pauses = [re.search(r"at most (\S+) s apart", line.text) for line in lines]
    longest = max((float(pause[1]) for pause in pauses if pause), default=0.0)
    MEASURED.append(f"measured: elastic: {what}: longest pause between two steps {longest:.2f} s")


def test_no_sample_is_lost_while_workers_come_and_go(space: Space) -> None:
    job = create(space)
    head = head_of(job)
    wait_for_size(space, head, 2, 0)
    # A rank is killed, and then a whole pod.
    begun = time.time()
    kill_rank(job.pods()["elastic-worker-1-g0"])
    joined = wait_for_joined(space, head, 2, begun)
    measured("elastic: rank killed -> two ranks step", joined - begun)
    begun = time.time()
    space.api.delete(space.path("Pod", "elastic-worker-1-g0"), {"gracePeriodSeconds": 0})
    alone = wait_for_size(space, head, 1, begun)
    measured("elastic: pod killed -> the other steps", alone - begun)
    tell_pause(space, head, "pod killed", begun, alone)
    wait_for_joined(space, head, 2, begun)
    # Four workers are wanted, and then three.
    for workers in (4, 3):
        begun = time.time()
        space.plane.kubectl("scale", "-n", space.name, "corrojob/elastic", f"--replicas={workers}")
        seen = wait_for_size(space, head, workers, begun)
        measured(f"elastic: scale to {workers} -> so many ranks step", seen - begun)
        tell_pause(space, head, f"scale to {workers}", begun, seen)
        if workers == 4:
            agents = [processes_of(pod, "corro agent --pod") for pod in job.pods().values()]
            newest = max(start_of(pid) for pids in agents for pid in pids)
            measured("elastic: the last added agent runs -> its rank steps, too", seen - newest)
    # A worker is evicted, as by a drain: its rank leaves between two steps.
    begun = time.time()
    evict(space, "elastic-worker-0-g0")
    leaves = wait_for_line(space, head, "host worker-0 is about to go", begun).when
    wait_for_joined(space, head, 3, leaves)
    progress = job.wait(lambda s: (s.get("progress") or {}).get("ranks") == 3, "three ranks")
    assert progress["progress"]["step"] > 0
    # The head goes, and the ranks do not wait for the next one.
    space.api.delete(space.path("Pod", head), {"gracePeriodSeconds": 0})
    job.wait_for_running({"elastic-head-g1"}, role="head")
    head = "elastic-head-g1"
    wait_for_line(space, head, PATTERN)
    job.wait_for_state("Succeeded")
    check_result(space, head, EPOCHS)
    reasons = {event["reason"] for event in job.events()}
    assert {"CorroJobReplacing", "CorroJobMembersChanged"} <= reasons
    assert "CorroJobRestarting" not in reasons


@pytest.mark.parametrize("way", ["evicted", "killed"])
def test_a_job_goes_on_after_all_of_its_workers_have_gone(space: Space, way: str) -> None:
    job = create(space, SHORT)
    head = head_of(job)
    wait_for_size(space, head, 2, 0)
    for pod in ("elastic-worker-0-g0", "elastic-worker-1-g0"):
        if way == "evicted":
            evict(space, pod)
        else:
            space.api.delete(space.path("Pod", pod), {"gracePeriodSeconds": 0})
    # One of them may have been replaced in time: the ranks go on then, or begin anew in another
    # round. Neither is a failure of the script.
    job.wait_for_state("Succeeded")
    check_result(space, newest_head(job), SHORT)
    assert set(job.status()["restartCounts"]) == {"lostPod"}
