"""What a fake node does with a pod: decisions alone, without an API server, a clock or a thread.

A pod on a fake node lives as on a real one: Pending, then Running with an address and Ready, then
Succeeded or Failed; a pod that is being deleted ends its containers and goes. What happens in
between, tests say by annotations, on the template or later with `kubectl annotate --overwrite`:

    fake.corro.dev/do: exit=0          all containers end with code 0 (or another one)
    fake.corro.dev/do: exit=3@worker   that container ends with code 3
    fake.corro.dev/do: oom             code 137, reason OOMKilled; oom@worker for one container
    fake.corro.dev/do: evict           the pod Failed, reason Evicted, as after pressure on the node
    fake.corro.dev/do: unready, ready  it stops being Ready (never is, if so made), or is so again
    fake.corro.dev/do: never-start     it stays Pending, its containers wait for an image
    fake.corro.dev/do: stuck           its deletion never ends, as on a node that is gone
    fake.corro.dev/after: 1.5          seconds that a command, or the start, is put off
    fake.corro.dev/message: TEXT       the termination message of containers that end by a command
    fake.corro.dev/stop-after: 2       seconds from the deletion's begin to the containers' end

A command happens once for each value: `exit=1#2` repeats `exit=1`. A container that the pod's
restartPolicy keeps (OnFailure and a code, or Always) starts again at once, its restartCount one
higher.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

PREFIX = "fake.corro.dev/"
EVICTED = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi."


@dataclass(frozen=True)
class Step:
    """One change of a pod: a status to patch, or the end of its deletion."""

    status: Object | None = None
    remove: bool = False
    delay: float = 0.0
    command: str = ""  # What the annotation said, so that it is done once.


def annotation(object_: Object, name: str) -> str:
    return str((object_["metadata"].get("annotations") or {}).get(PREFIX + name, ""))


def seconds(object_: Object, name: str) -> float:
    try:
        return float(annotation(object_, name) or 0)
    except ValueError:
        return 0.0


def next_step(pod: Object, done: str, address: str, now: str) -> Step | None:
    """Says what the pod's node does next; `done` is the last command it obeyed for this pod."""
    command = annotation(pod, "do")
    word = command.partition("#")[0]
    status = pod.get("status") or {}
    finished = status.get("phase") in ("Succeeded", "Failed")
    if pod["metadata"].get("deletionTimestamp"):
        if word == "stuck":
            return None
        if finished:
            return Step(remove=True)
        return Step(_ended(pod, {}, now, forced=True), delay=seconds(pod, "stop-after"))
    if finished:
        return None
    if (deadline := pod["spec"].get("activeDeadlineSeconds")) is not None:
        late = _ended(pod, {}, now, forced=True) | {"phase": "Failed", "reason": "DeadlineExceeded"}
        return Step(late, delay=float(deadline))
    if status.get("phase", "Pending") == "Pending":
        if word == "never-start":
            return None if command == done else Step(_waiting(pod), command=command)
        if word == "unready":
            return Step(_running(pod, address, now, ready=False), command=command)
        return Step(_running(pod, address, now), delay=_start_delay(pod))
    if _was_marked_unready(status):
        return Step({"conditions": _readiness(True, now)})
    if not command or command == done:
        return None
    change = _obey(pod, word, now)
    return None if change is None else Step(change, delay=seconds(pod, "after"), command=command)


def _was_marked_unready(status: Object) -> bool:
    """True after the node was thought lost: a kubelet says again what its containers are."""
    containers_ready = all(
        s["ready"] for s in status.get("containerStatuses") or [{"ready": False}]
    )
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or []}
    return containers_ready and conditions.get("Ready") == "False"


def _start_delay(pod: Object) -> float:
    return 0.0 if annotation(pod, "do") else seconds(pod, "after")


def _obey(pod: Object, word: str, now: str) -> Object | None:
    verb, _, container = word.partition("@")
    if verb == "oom":
        return _ended(pod, {container: (137, "OOMKilled")}, now)
    if verb.startswith("exit=") and verb[5:].isdigit():
        code = int(verb[5:])
        return _ended(pod, {container: (code, "Error" if code else "Completed")}, now)
    if verb == "evict":
        disrupted = _condition("DisruptionTarget", True, now, "TerminationByKubelet", EVICTED)
        ended = _ended(pod, {"": (137, "Error")}, now, forced=True)
        return ended | {
            "phase": "Failed",
            "reason": "Evicted",
            "message": EVICTED,
            "conditions": [*ended["conditions"], disrupted],
        }
    if verb in ("ready", "unready"):
        statuses = [s | {"ready": verb == "ready"} for s in pod["status"]["containerStatuses"]]
        return {"conditions": _readiness(verb == "ready", now), "containerStatuses": statuses}
    return None


def _condition(kind: str, is_true: bool, now: str, reason: str = "", message: str = "") -> Object:
    status = "True" if is_true else "False"
    condition = {"type": kind, "status": status, "lastTransitionTime": now}
    if reason:
        condition |= {"reason": reason, "message": message}
    return condition


def _readiness(ready: bool, now: str, reason: str = "ContainersNotReady") -> list[Object]:
    because = "" if ready else reason
    return [_condition(kind, ready, now, because) for kind in ("Ready", "ContainersReady")]


def _status(container: Object, state: Object, ready: bool, restarts: int = 0) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"fake://{container['image']}",
        "state": state,
        "ready": ready,
        "started": ready,
        "restartCount": restarts,
    }


def _waiting(pod: Object) -> Object:
    def state(container: Object) -> Object:
        message = f'Failed to pull image "{container["image"]}": not found'
        return {"waiting": {"reason": "ErrImagePull", "message": message}}

    statuses = [_status(c, state(c), False) for c in pod["spec"]["containers"]]
    return {"phase": "Pending", "containerStatuses": statuses}


def _running(pod: Object, address: str, now: str, ready: bool = True) -> Object:
    def initial(container: Object) -> Object:
        if container.get("restartPolicy") == "Always":  # A sidecar.
            return _status(container, {"running": {"startedAt": now}}, True)
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
        return _status(container, {"terminated": ended}, True)

    main = [_status(c, {"running": {"startedAt": now}}, ready) for c in pod["spec"]["containers"]]
    initialized = [_condition(k, True, now) for k in ("PodReadyToStartContainers", "Initialized")]
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
        "containerStatuses": main,
        "initContainerStatuses": [initial(c) for c in pod["spec"].get("initContainers", [])],
        "conditions": initialized + _readiness(ready, now),
    }


def _ended(pod: Object, ends: dict[str, tuple[int, str]], now: str, forced: bool = False) -> Object:
    """The status after these containers ended ("" means all).

    forced: the others get SIGTERM, and none restarts.
    """
    policy = pod["spec"].get("restartPolicy", "Always")
    statuses = []
    for container in pod["spec"]["containers"]:
        status = _current(pod, container)
        code, reason = ends.get(container["name"], ends.get("", (143, "Error")))
        named = container["name"] in ends or "" in ends
        if "running" in status["state"] and (named or forced):
            started = status["state"]["running"].get("startedAt", now)
            end = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}
            if named and annotation(pod, "message"):
                end["message"] = annotation(pod, "message")
            restarts = not forced and (policy == "Always" or (policy == "OnFailure" and code != 0))
            status = status | _after(end, restarts, status["restartCount"], now)
        elif forced and "waiting" in status["state"]:
            end = {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": now}
            status = status | _after(end, False, status["restartCount"], now)
        statuses.append(status)
    return _with_phase(pod, statuses, now)


def _current(pod: Object, container: Object) -> Object:
    for status in (pod.get("status") or {}).get("containerStatuses") or []:
        if status["name"] == container["name"]:
            return dict(status)
    return _status(container, {"waiting": {"reason": "ContainerCreating"}}, False)


def _after(end: Object, restarts: bool, count: int, now: str) -> Object:
    if restarts:
        running = {"running": {"startedAt": now}}
        return {"state": running, "lastState": {"terminated": end}, "restartCount": count + 1}
    return {"state": {"terminated": end}, "ready": False, "started": False}


def _with_phase(pod: Object, statuses: list[Object], now: str) -> Object:
    ends = [s["state"]["terminated"]["exitCode"] for s in statuses if "terminated" in s["state"]]
    change: Object = {"containerStatuses": statuses}
    if len(ends) == len(pod["spec"]["containers"]):
        change["phase"] = "Failed" if any(ends) else "Succeeded"
        change["conditions"] = _readiness(False, now, "PodFailed" if any(ends) else "PodCompleted")
    else:
        change["conditions"] = _readiness(all(s["ready"] for s in statuses), now)
    return change
