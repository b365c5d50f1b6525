"""A CorroJob on a real node: it trains, goes on from its checkpoint, and ends as it should."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from harness import Plane
from jobs import Job, Space
from node_jobs import LONG, corro_job, make_volume
from pods_seen import head_of, kill_rank, measured, wait_for_line, wait_for_ranks

CHECKPOINT = ("--checkpoint", "/checkpoint/weights.npz")


@pytest.fixture
def volume(plane: Plane, space: Space, tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    make_volume(plane, space, folder, "weights")
    return folder


def create(space: Space, *more: str, **others: str) -> Job:
    """With its checkpoint on the claim of `volume`."""
    manifest = corro_job("fashion", *more, *CHECKPOINT, **others)
    manifest["spec"]["checkpoint"] = {"claim": "weights"}
    return space.create(manifest)


def start(space: Space) -> Job:
    """One that trains for long, and has left a checkpoint."""
    job = create(space, *LONG)
    wait_for_line(space, head_of(job), "epoch 2/")
    return job


def epoch_of(text: str) -> int:
    return int(text.split("epoch ")[1].split("/")[0])


def test_it_trains(space: Space, volume: Path) -> None:
    begun = time.time()
    job = create(space)
    measured("CorroJob applied -> ranks running", wait_for_ranks(job) - begun)
    head = head_of(job)
    wait_for_line(space, head, "epoch 1/4 accuracy 0.8")
    job.wait_for_state("Succeeded")
    with np.load(volume / "weights.npz") as left:
        assert left["epoch"] == 3, "the last of four"
    job.wait_until(
        lambda: job.objects("Pod")[head]["status"]["phase"] == "Failed", "the head's end"
    )
    wait_for_line(space, head, "epoch 4/4 accuracy 0.8")


def test_a_deleted_worker_costs_a_restart_from_the_checkpoint(space: Space, volume: Path) -> None:
    job = start(space)
    begun = time.time()
    space.api.delete(space.path("Pod", "fashion-worker-1-g0"), {"gracePeriodSeconds": 1})
    job.wait(lambda s: s.get("restarts") == 1, "one restart")
    step = wait_for_line(space, head_of(job), " step ", after=wait_for_ranks(job))
    measured("CorroJob's worker deleted -> ranks step again", step.when - begun)
    assert epoch_of(step.text) >= 2
    assert (volume / "weights.npz").exists()
    assert job.status()["restartCounts"]["lostPod"] == 1


@pytest.mark.usefixtures("volume")
def test_a_killed_rank_is_an_error_of_the_user(space: Space) -> None:
    job = start(space)
    kill_rank(job.pods()["fashion-worker-1-g0"])
    status = job.wait(lambda s: s.get("restarts") == 1, "one restart")
    assert status["restartCounts"]["userError"] == 1
    job.wait_for_running({"fashion-worker-0-g1", "fashion-worker-1-g1"})


@pytest.mark.usefixtures("volume")
def test_a_lack_of_memory_is_told_from_other_ends(space: Space) -> None:
    """The images alone are 188 MB."""
    job = create(space, memory="150Mi")
    status = job.wait_for_state("Failed")
    assert status["restartCounts"]["outOfMemory"] == 1
    assert "memory" in job.condition("Failed")["message"]


@pytest.mark.usefixtures("volume")
def test_ranks_hear_sigterm_and_have_their_grace(space: Space) -> None:
    manifest = corro_job("fashion")
    script = "trap 'sleep 2; echo told on $HOSTNAME; exit 3' TERM; echo begun on $HOSTNAME; "
    script += "while :; do sleep 0.1; done"
    pod = manifest["spec"]["worker"]["template"]["spec"]
    pod["containers"][0]["command"] = ["sh", "-c", script]
    job = space.create(manifest)
    head = head_of(job)
    wait_for_line(space, head, "begun on fashion-worker-1")
    space.api.delete(space.path("Pod", "fashion-worker-1-g0"))
    wait_for_line(space, head, "told on fashion-worker-1")
    job.wait_for_running({"fashion-worker-0-g0", "fashion-worker-1-g1"})


@pytest.mark.usefixtures("volume")
def test_a_drained_node_is_left_and_the_job_goes_on_after_it(plane: Plane, space: Space) -> None:
    job = start(space)
    try:
        plane.kubectl("drain", "real", "--force", "--delete-emptydir-data", "--timeout=120s")
        job.wait(lambda s: "unschedulable" in str(s.get("conditions")), "the scheduler's words")
        assert {each["status"]["phase"] for each in job.pods().values()} == {"Pending"}
    finally:
        plane.kubectl("uncordon", "real")
    step = wait_for_line(space, head_of(job), " step ", after=wait_for_ranks(job))
    assert epoch_of(step.text) >= 2
    assert set(job.status()["restartCounts"]) == {"lostPod"}
