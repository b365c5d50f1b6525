"""A CorroJob's life under `corro operator`, on a real control plane with fake nodes."""

from __future__ import annotations

from typing import Any

from harness import QuietFor, wait_until
from jobs import PATIENCE, UID_LABEL, Job, Space, corro_manifest
from operator_process import OperatorProcess
from prometheus_rules import problems

Object = dict[str, Any]


def restarts(status: Object) -> tuple[int, Object]:
    """How often, and why; causes that never were are left out."""
    counts = {cause: n for cause, n in (status.get("restartCounts") or {}).items() if n}
    return status.get("restarts", 0), counts


def start(space: Space, name: str = "a", target: int = 2, **spec: Any) -> Job:
    """A job whose workers run."""
    job = space.corro_job(name, target, **spec)
    job.wait_for_running(job.workers(*[0] * target))
    return job


def wait_until_handled(job: Job) -> Object:
    """Returns the status once the operator has decided on the newest manifest."""
    generation = job.get()["metadata"]["generation"]
    return job.wait(lambda s: s.get("observedGeneration") == generation, "the manifest seen")


def end_all(job: Job, do: str = "exit=0") -> None:
    for pod in job.pods():
        job.space.command(pod, do)


# --- Start ---------------------------------------------------------------------------------------


def test_a_job_runs_with_all_that_is_its_own(space: Space, operator: OperatorProcess) -> None:
    job = start(space)
    assert job.all_objects() == {
        "Pod": ["a-head", "a-worker-0-g0", "a-worker-1-g0"],
        "Service": ["a", "a-head"],
        "Secret": [f"a-{job.uid}"],
        "NetworkPolicy": ["a"],
        "PodGroup": ["a-2"],
    }
    status = job.status()
    assert (status["desired"], status["ready"], restarts(status)) == (2, 2, (0, {}))
    assert status["observedGeneration"] == job.get()["metadata"]["generation"]
    shown = space.plane.kubectl("get", "corro", "-n", space.name, "--no-headers").split()
    assert shown[:4] == ["a", "Running", "2", "2"]
    assert not operator.log("an action did not end well")


def test_everything_of_a_job_is_owned_and_labelled(space: Space) -> None:
    job = start(space)
    for kind in job.all_objects():
        for name, each in job.objects(kind).items():
            [owner] = each["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"], owner["uid"]) == ("CorroJob", "a", job.uid), name
            assert owner["controller"]
            assert owner["blockOwnerDeletion"]
            assert each["metadata"]["labels"]["training.corro.dev/role"], name
    worker = job.objects("Pod")["a-worker-1-g0"]
    labels = worker["metadata"]["labels"]
    labels.pop("topology.kubernetes.io/zone", None)  # The scheduler's.
    assert labels == {
        UID_LABEL: job.uid,
        "training.corro.dev/role": "worker",
        "training.corro.dev/index": "1",
        "training.corro.dev/generation": "0",
    }
    assert (worker["spec"]["hostname"], worker["spec"]["subdomain"]) == ("a-worker-1", "a")
    assert worker["spec"]["restartPolicy"] == "Never"


def test_a_deleted_job_leaves_nothing(space: Space) -> None:
    job = start(space)
    job.delete()
    job.wait_for_nothing()
    # A job of the same name is another one.
    again = start(space)
    assert again.uid != job.uid


def test_an_image_that_does_not_exist_is_told(space: Space) -> None:
    manifest = corro_manifest("a", 1)
    manifest["spec"]["worker"]["template"]["metadata"] = {
        "annotations": {"fake.corro.dev/do": "never-start"}
    }
    job = space.create(manifest)
    told = 'Failed to pull image "image": not found'
    status = job.wait(lambda s: told in str(s.get("conditions")), "the image's trouble")
    assert status["state"] == "Pending"
    assert "a-worker-0-g0: ErrImagePull" in job.condition("Pending")["message"]


def test_a_job_that_fits_on_no_node_is_told(space: Space) -> None:
    manifest = corro_manifest("a", 1)
    container = manifest["spec"]["worker"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "1000"}}
    job = space.create(manifest)
    job.wait(lambda s: "Unschedulable" in str(s.get("conditions")), "the scheduler's words")
    assert "Insufficient cpu" in job.condition("Pending")["message"]


# --- Losses --------------------------------------------------------------------------------------


def test_a_deleted_worker_is_replaced(space: Space, operator: OperatorProcess) -> None:
    job = start(space)
    other = job.pods()["a-worker-0-g0"]["metadata"]["uid"]
    space.api.delete(space.path("Pod", "a-worker-1-g0"))
    status = job.wait_for_running(job.workers(0, 1))
    assert restarts(status) == (1, {"lostPod": 1})
    pods = job.pods()
    assert pods["a-worker-0-g0"]["metadata"]["uid"] == other
    new = pods["a-worker-1-g1"]
    assert new["spec"]["hostname"] == "a-worker-1"
    assert new["metadata"]["labels"]["training.corro.dev/generation"] == "1"
    assert operator.metrics()['corro_operator_restarts_total{cause="lostPod"}'] == 1
    wait_until(
        lambda: set(job.objects("Pod")) == {"a-head", *job.workers(0, 1)}, "the old pod gone"
    )


def test_an_evicted_worker_is_replaced(space: Space) -> None:
    job = start(space)
    space.command("a-worker-0-g0", "evict")
    status = job.wait_for_running(job.workers(1, 0))
    assert restarts(status) == (1, {"lostPod": 1})


def test_a_worker_that_is_out_of_memory_is_counted_so(space: Space) -> None:
    job = start(space)
    space.command("a-worker-0-g0", "oom")
    status = job.wait_for_running(job.workers(1, 0))
    assert restarts(status) == (1, {"outOfMemory": 1})
    # Its pod stays for its logs.
    assert job.objects("Pod")["a-worker-0-g0"]["status"]["phase"] == "Failed"
    # The default is one such restart.
    space.command("a-worker-0-g1", "oom")
    job.wait_for_state("Failed")
    failed = job.condition("Failed")
    assert failed["reason"] == "RestartLimitReached"
    assert "out of memory" in failed["message"]


def test_a_bad_exit_code_is_a_users_error_up_to_the_limit(space: Space) -> None:
    rule = {"limit": 2, "backoffSeconds": 0, "maxBackoffSeconds": 0}
    job = start(space, restart={"userError": rule})
    for generation in range(2):
        space.command(f"a-worker-1-g{generation}", "exit=3")
        status = job.wait_for_running(job.workers(0, generation + 1))
        assert restarts(status) == (generation + 1, {"userError": generation + 1})
    space.command("a-worker-1-g2", "exit=3")
    job.wait_for_state("Failed")
    assert "exit code 3" in job.condition("Failed")["message"]
    assert "restart.userError.limit is 2" in job.condition("Failed")["message"]
    # What ended stays for its logs, the others go.
    wait_until(lambda: "a-worker-0-g0" not in job.objects("Pod"), "the other worker's end")
    assert job.objects("Pod")["a-worker-1-g2"]["status"]["phase"] == "Failed"
    assert restarts(job.status()) == (2, {"userError": 2})


def test_ends_of_one_round_are_one_restart(space: Space, operator: OperatorProcess) -> None:
    job = start(space, target=3)
    with operator.paused():
        for pod, do in zip(sorted(job.pods()), ("exit=1", "oom", "evict"), strict=True):
            space.command(pod, do)
        wait_until(lambda: not job.pods(), "all three ends")
    status = job.wait_for_running(job.workers(1, 1, 1))
    # Watches tell of one end after the other; the first one is counted, the others belong to it.
    assert status["restarts"] == 1
    rounds = {
        pod["metadata"]["annotations"]["training.corro.dev/round"] for pod in job.pods().values()
    }
    assert rounds == {"1"}


def test_a_worker_that_was_done_starts_again_with_its_round(space: Space) -> None:
    job = start(space)
    space.command("a-worker-0-g0", "exit=0")
    job.wait(lambda s: (s.get("members") or {}).get("worker-0", {}).get("done"), "one done")
    space.command("a-worker-1-g0", "exit=1")
    status = job.wait_for_running(job.workers(1, 1))
    assert restarts(status) == (1, {"userError": 1})


def test_a_lost_head_is_replaced_and_its_job_counts_it(space: Space) -> None:
    job = start(space)
    space.api.delete(space.path("Pod", "a-head"))
    wait_until(lambda: set(job.pods("head")) == {"a-head-g1"}, "another head")
    status = job.wait_for_running(job.workers(0, 0))
    assert restarts(status) == (1, {"lostPod": 1})


def test_a_back_off_is_told(space: Space) -> None:
    rule = {"limit": 3, "backoffSeconds": 3600, "maxBackoffSeconds": 3600}
    job = start(space, restart={"userError": rule})
    space.command("a-worker-1-g0", "exit=1")
    told = job.wait_for_condition("Pending", "BackOff")
    status = job.status()
    assert status["state"] == "Restarting"
    assert told["message"] == f"a-worker-1-g1 is made at {status['nextActionTime']}"
    assert set(job.pods()) == {"a-worker-0-g0"}


def test_a_pod_that_is_stuck_in_its_deletion_is_not_waited_for(space: Space) -> None:
    job = start(space)
    space.command("a-worker-1-g0", "stuck")
    space.api.delete(space.path("Pod", "a-worker-1-g0"))
    job.wait_for_running(job.workers(0, 1))
    stuck = job.objects("Pod")["a-worker-1-g0"]
    assert "deletionTimestamp" in stuck["metadata"]


# --- Size, suspension, end -----------------------------------------------------------------------


def test_a_suspended_job_has_no_pods_and_begins_anew(space: Space) -> None:
    job = start(space)
    job.patch({"suspend": True})
    job.wait_for_state("Suspended")
    job.wait_for_no_pods()
    left = job.all_objects()
    assert set(left) == {"Service", "Secret", "NetworkPolicy"}
    assert "startTime" not in job.status()
    job.patch({"suspend": False})
    status = job.wait_for_running(job.workers(1, 1))
    assert restarts(status) == (0, {})
    assert status["startTime"]


def test_a_job_that_is_made_suspended_has_no_pods(space: Space) -> None:
    job = space.corro_job("a", suspend=True)
    job.wait_for_state("Suspended")
    assert not job.objects("Pod")
    job.patch({"suspend": False})
    wait_until(lambda: len(job.pods()) == 2, "workers")


def test_a_job_grows_and_shrinks(space: Space) -> None:
    job = start(space)
    job.patch({"worker": {"target": 3}})
    status = job.wait_for_running(job.workers(0, 0, 0))
    assert (status["desired"], restarts(status)) == (3, (0, {}))
    job.patch({"worker": {"target": 1}})
    job.wait_for_running(job.workers(0))
    job.patch({"worker": {"target": 2}})
    # Generations are never used twice.
    job.wait_for_running(job.workers(0, 1))
    assert restarts(job.status()) == (0, {})


def test_a_lost_pod_of_a_smaller_job_waits_for_no_larger_gang(space: Space) -> None:
    manifest = corro_manifest("a", 3)
    manifest["spec"]["gang"] = "Native"
    job = space.create(manifest)
    job.wait_for_running(job.workers(0, 0, 0))
    [group] = job.objects("PodGroup").values()
    assert group["spec"]["schedulingPolicy"]["gang"]["minCount"] == 3
    job.patch({"worker": {"target": 1}})
    wait_until(lambda: set(job.pods()) == job.workers(0), "one worker alone")
    space.api.delete(space.path("Pod", "a-worker-0-g0"))
    job.wait_for_running(job.workers(1))
    job.patch({"worker": {"target": 3}})
    job.wait_for_running(job.workers(1, 1, 1))


def test_a_finished_job_never_starts_again(bare_space: Space) -> None:
    with OperatorProcess(bare_space.kubeconfig, bare_space.name).begin() as operator:
        job = start(bare_space)
        end_all(job)
        job.wait_for_state("Succeeded")
        # The kubelet ends the head, and the ranks' log stays with its pod.
        wait_until(
            lambda: job.objects("Pod")["a-head"]["status"]["phase"] == "Failed", "the head's end"
        )
        assert set(job.objects("Pod")) == {"a-head", *job.workers(0, 0)}
        operator.stop()
    for pod in job.objects("Pod"):
        bare_space.api.delete(bare_space.path("Pod", pod))
    job.wait_for_no_pods()
    with OperatorProcess(bare_space.kubeconfig, bare_space.name).begin() as operator:
        job.patch({"suspend": True})
        job.patch({"worker": {"target": 3}, "suspend": False})
        status = wait_until_handled(job)
        start(bare_space, "b")  # Whatever was to do about the first is done.
        assert not job.objects("Pod")
        assert job.status() == status
        assert status["state"] == "Succeeded"
        operator.stop()


def test_a_job_is_deleted_after_its_time_to_live(space: Space) -> None:
    job = start(space, ttlSecondsAfterFinished=1)
    end_all(job)
    wait_until(lambda: not space.items("CorroJob"), "the job's end", PATIENCE)
    job.wait_for_nothing()


def test_a_deadline_ends_a_job(space: Space) -> None:
    job = space.corro_job("a", activeDeadlineSeconds=2)
    job.wait_for_state("Failed")
    assert job.condition("Failed")["reason"] == "DeadlineExceeded"
    # Its log may tell what took so long.
    job.wait_until(lambda: set(job.objects("Pod")) == {"a-head"}, "the head alone")


# --- What is not ours ----------------------------------------------------------------------------


def test_jobs_of_others_are_left_alone(space: Space) -> None:
    job = space.corro_job("other", managedBy="kueue.x-k8s.io/multikueue")
    start(space)
    assert not job.status()
    assert not job.all_objects()


def test_events_tell_of_a_jobs_way(space: Space) -> None:
    job = start(space)
    end_all(job)
    job.wait_for_state("Succeeded")

    wanted = {"CorroJobCreated", "CorroJobRunning", "CorroJobSucceeded"}
    wait_until(lambda: wanted <= {event["reason"] for event in job.events()}, "the events")


# --- Pages ---------------------------------------------------------------------------------------


# mpijob different: pages
def test_pages_tell_how_the_operator_is(space: Space, operator: OperatorProcess) -> None:
    assert operator.page("/healthz")[0] == 200
    wait_until(lambda: operator.page("/readyz")[0] == 200, "readiness")
    assert operator.page("/")[0] == 404
    start(space, "a", 1)
    start(space, "b", 1)
    space.corro_job("c", suspend=True).wait_for_state("Suspended")
    state = 'corro_operator_jobs{{kind="CorroJob",state="{}"}}'
    wait_until(
        lambda: (
            [operator.metrics().get(state.format(s)) for s in ("Running", "Suspended")] == [2, 1]
        ),
        "the jobs by state",
    )
    metrics = operator.metrics()
    assert metrics["corro_operator_leads"] == 1
    assert metrics["corro_operator_job_start_seconds_count"] == 2
    assert metrics['corro_operator_api_calls_total{verb="create",result="done"}'] >= 14
    assert problems(operator.page("/metrics")[1]) == []


def test_an_idle_operator_calls_nobody(space: Space, operator: OperatorProcess) -> None:
    """Beside its watches and its Lease: a quiet job costs nothing."""
    job = start(space)
    # What may be written late, at most once a second, is written once nothing has changed for 3 s.
    quiet = QuietFor(3.0)
    wait_until(lambda: quiet.holds(operator.api_calls()), "no calls for 3 s", PATIENCE)
    version = job.get()["metadata"]["resourceVersion"]
    calls = operator.api_calls()
    start(space, "b", 1)
    assert job.get()["metadata"]["resourceVersion"] == version
    assert operator.api_calls() > calls
