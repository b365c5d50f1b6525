"""What a fake node decides, without a plane."""

from __future__ import annotations

from typing import Any

import pytest
from pod_life import next_step

Object = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"


def pod(command: str = "", policy: str = "Never", **status: Any) -> Object:
    containers = [{"name": name, "image": "image"} for name in ("worker", "helper")]
    annotations = {"fake.corro.dev/do": command} if command else {}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"containers": containers, "restartPolicy": policy},
        "status": status,
    }


def running(command: str = "", policy: str = "Never") -> Object:
    status = next_step(pod(), "", "10.0.0.1", NOW).status
    assert status is not None
    return pod(command, policy, **status)


def status_after(object_: Object, done: str = "") -> Object:
    step = next_step(object_, done, "10.0.0.1", NOW)
    assert step is not None
    assert step.status is not None
    return step.status


def ready(status: Object) -> str:
    return next(c["status"] for c in status["conditions"] if c["type"] == "Ready")


def test_a_pending_pod_runs_with_an_address_and_is_ready() -> None:
    status = status_after(pod(phase="Pending"))
    assert status["phase"] == "Running"
    assert status["podIP"] == "10.0.0.1"
    assert ready(status) == "True"


def test_an_init_container_has_ended_and_a_sidecar_runs() -> None:
    object_ = pod()
    sidecar = {"name": "side", "image": "i", "restartPolicy": "Always"}
    object_["spec"]["initContainers"] = [{"name": "first", "image": "i"}, sidecar]
    first, side = status_after(object_)["initContainerStatuses"]
    assert first["state"]["terminated"]["exitCode"] == 0
    assert "running" in side["state"]


def test_without_a_command_a_running_pod_is_left_alone() -> None:
    assert next_step(running(), "", "", NOW) is None


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed"), (137, "Failed")])
def test_exit_ends_all_containers(code: int, phase: str) -> None:
    status = status_after(running(f"exit={code}"))
    assert status["phase"] == phase
    codes = [s["state"]["terminated"]["exitCode"] for s in status["containerStatuses"]]
    assert codes == [code, code]
    assert ready(status) == "False"


def test_exit_of_one_container_leaves_the_other_running() -> None:
    status = status_after(running("exit=3@worker"))
    assert "phase" not in status
    worker, helper = status["containerStatuses"]
    assert worker["state"]["terminated"]["exitCode"] == 3
    assert "running" in helper["state"]
    assert ready(status) == "False"


@pytest.mark.parametrize(
    ("policy", "code", "restarts"),
    [("Always", 0, 1), ("Always", 1, 1), ("OnFailure", 1, 1), ("OnFailure", 0, 0), ("Never", 1, 0)],
)
def test_the_restart_policy_is_kept(policy: str, code: int, restarts: int) -> None:
    status = status_after(running(f"exit={code}", policy))
    assert [s["restartCount"] for s in status["containerStatuses"]] == [restarts, restarts]
    assert ("phase" in status) == (restarts == 0)


def test_out_of_memory_has_its_reason() -> None:
    worker = status_after(running("oom@worker"))["containerStatuses"][0]
    assert worker["state"]["terminated"]["reason"] == "OOMKilled"
    assert worker["state"]["terminated"]["exitCode"] == 137


def test_an_evicted_pod_fails_whatever_its_restart_policy() -> None:
    status = status_after(running("evict", "Always"))
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    assert any(c["type"] == "DisruptionTarget" for c in status["conditions"])


def test_never_start_waits_for_an_image_and_says_so_once() -> None:
    status = status_after(pod("never-start"))
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"
    assert next_step(pod("never-start"), "never-start", "", NOW) is None


def test_a_pod_that_is_made_unready_never_is_ready() -> None:
    step = next_step(pod("unready"), "", "10.0.0.1", NOW)
    assert step.status["phase"] == "Running"
    assert ready(step.status) == "False"
    assert step.command == "unready"


def test_a_command_is_done_once_and_again_under_another_number() -> None:
    assert next_step(running("unready"), "unready", "", NOW) is None
    assert ready(status_after(running("unready#2"), "unready")) == "False"


@pytest.mark.parametrize("word", ["dance", "exit=", "exit=x", "exit=-1"])
def test_an_unknown_command_does_nothing(word: str) -> None:
    assert next_step(running(word), "", "", NOW) is None


def test_a_deleted_pod_ends_its_containers_and_then_goes() -> None:
    object_ = running(policy="Always")
    object_["metadata"]["deletionTimestamp"] = NOW
    status = status_after(object_)
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    object_["status"] |= status
    assert next_step(object_, "", "", NOW).remove


def test_a_stuck_pod_does_not_go() -> None:
    object_ = running("stuck")
    object_["metadata"]["deletionTimestamp"] = NOW
    assert next_step(object_, "", "", NOW) is None


def test_a_finished_pod_obeys_no_command() -> None:
    assert next_step(pod("exit=0", phase="Failed"), "", "", NOW) is None


def test_delays_are_the_annotations() -> None:
    object_ = running("exit=0")
    object_["metadata"]["annotations"] |= {"fake.corro.dev/after": "1.5"}
    assert next_step(object_, "", "", NOW).delay == 1.5
    object_["metadata"]["annotations"] |= {"fake.corro.dev/stop-after": "2"}
    object_["metadata"]["deletionTimestamp"] = NOW
    assert next_step(object_, "", "", NOW).delay == 2


def test_a_pod_that_was_marked_unready_with_its_node_says_that_it_is_ready() -> None:
    """The node lifecycle controller writes the condition and leaves the containers' state."""
    marked = running()
    marked["status"]["conditions"] = [
        c | {"status": "False"} if c["type"] == "Ready" else c
        for c in marked["status"]["conditions"]
    ]
    assert ready(status_after(marked)) == "True"
    assert next_step(running(), "", "10.0.0.1", NOW) is None
