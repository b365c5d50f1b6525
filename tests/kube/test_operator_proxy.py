"""`corro operator` behind a proxy that spoils its calls, or stops it between two of them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from fault_proxy import KINDS, FaultProxy, Faults
from harness import Plane, QuietFor, wait_until
from jobs import Job, Space, mpi_manifest
from operator_process import OperatorProcess

Object = dict[str, Any]


def check_nothing_is_twice(job: Job) -> None:
    """Each worker has one pod that lives, and each object is there once."""
    hosts = Counter(pod["spec"]["hostname"] for pod in job.pods().values())
    assert set(hosts.values()) == {1}, hosts
    assert len(job.pods("head")) == 1
    assert len(job.objects("Service")) == 2
    assert len(job.objects("Secret")) == 1


def run_through(space: Space) -> None:
    """A CorroJob with two losses and a resize, and an MPIJob to its end: always the same end."""
    job = space.corro_job("a", 3)
    mpi = space.create(mpi_manifest("m", cleanPodPolicy="All"))
    job.wait_for_running(job.workers(0, 0, 0))
    job.wait(lambda s: "worker-1" in (s.get("members") or {}), "the workers seen")
    space.api.delete(space.path("Pod", "a-worker-1-g0"))
    status = job.wait_for_running(job.workers(0, 1, 0))
    assert (status["restarts"], status["restartCounts"]) == (1, {"lostPod": 1})
    space.command("a-worker-0-g0", "oom")
    status = job.wait_for_running(job.workers(1, 1, 0))
    assert status["restartCounts"] == {"lostPod": 1, "outOfMemory": 1}
    check_nothing_is_twice(job)
    job.patch({"worker": {"target": 2}})
    status = job.wait_for_running(job.workers(1, 1))
    assert status["restarts"] == 2

    mpi.wait_for_running({"m-worker-0", "m-worker-1"})
    [launcher] = mpi.pods("launcher")
    space.command(launcher, "exit=0")
    mpi.wait_for_state("Succeeded")
    mpi.wait_until(lambda: set(mpi.objects("Pod")) == {launcher}, "the launcher's pod alone")
    for name in job.pods():
        space.command(name, "exit=0")
    assert job.wait_for_state("Succeeded")["restarts"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_faults_of_a_kind_change_nothing_but_the_time(bare_space: Space, kind: str) -> None:
    rate = 0.5 if kind == "expired" else 0.3  # Of watches alone, which are few.
    with (
        FaultProxy(bare_space.plane, Faults(seed=1, rate=rate, kinds=(kind,))) as proxy,
        OperatorProcess(proxy.kubeconfig, bare_space.name) as operator,
    ):
        operator.wait_for("leads")
        run_through(bare_space)
        assert proxy.faults_seen()[kind] > 0
        proxy.end_faults()  # Its Lease is given back at the end.
        operator.stop()


@pytest.mark.parametrize("seed", range(3))
def test_faults_of_all_kinds_change_nothing_but_the_time(bare_space: Space, seed: int) -> None:
    with (
        FaultProxy(bare_space.plane, Faults(seed=seed, rate=0.25)) as proxy,
        OperatorProcess(proxy.kubeconfig, bare_space.name) as operator,
    ):
        operator.wait_for("leads")
        run_through(bare_space)
        assert len(proxy.faults_seen()) >= 4, proxy.faults_seen()
        proxy.end_faults()
        operator.stop()


def kill_between_writes(space: Space, proxy: FaultProxy, count: int, answered: bool) -> None:
    """Starts an operator and kills it at its count-th write, or when it has nothing to write."""
    proxy.hold(count, answered)
    quiet = QuietFor(3.0)
    with OperatorProcess(proxy.kubeconfig, space.name) as operator:
        operator.wait_for("leads")
        wait_until(lambda: proxy.is_held() or quiet.holds(operator.api_calls()), "the write")
        operator.kill()
    proxy.release()
    # The next one need not wait for 15 s.
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{space.name}/leases"
    space.api.delete(f"{leases}/corro-operator")


@pytest.mark.parametrize("seed", range(2))
def test_an_operator_that_is_killed_between_writes_leaves_nothing_undone_or_twice(
    bare_space: Space, seed: int
) -> None:
    chance = random.Random(seed)
    space = bare_space
    with FaultProxy(space.plane) as proxy:
        job = space.corro_job("a", 3)
        mpi = space.create(mpi_manifest("m"))
        for _ in range(5):
            kill_between_writes(space, proxy, chance.randint(1, 7), chance.random() < 0.5)
        with OperatorProcess(proxy.kubeconfig, space.name).begin() as operator:
            job.wait_for_running(job.workers(0, 0, 0))
            mpi.wait_for_running({"m-worker-0", "m-worker-1"})
            for each in (job, mpi):
                each.wait(lambda s: "worker-1" in (s.get("members") or {}), "the workers seen")
            operator.stop()
        uids = {name: pod["metadata"]["uid"] for name, pod in job.objects("Pod").items()}
        for name in ("a-worker-1-g0", "m-worker-1"):
            space.api.delete(space.path("Pod", name))
        for count in range(1, 5):
            kill_between_writes(space, proxy, count, chance.random() < 0.5)
        with OperatorProcess(proxy.kubeconfig, space.name).begin() as operator:
            status = job.wait_for_running(job.workers(0, 1, 0))
            assert (status["restarts"], status["restartCounts"]) == (1, {"lostPod": 1})
            status = mpi.wait_for_running({"m-worker-0", "m-worker-1-g1"})
            assert (status["restarts"], status["restartCounts"]) == (1, {"lostPod": 1})
            for each in (job, mpi):
                check_nothing_is_twice(each)
            operator.stop()
    pods = job.objects("Pod")
    kept = ("a-head", "a-worker-0-g0", "a-worker-2-g0")
    assert [pods[name]["metadata"]["uid"] for name in kept] == [uids[name] for name in kept]


def test_an_idle_operator_renews_its_lease_and_watches(crds: Plane, namespace: str) -> None:
    space = Space(crds, namespace)
    with (
        FaultProxy(crds) as proxy,
        OperatorProcess(proxy.kubeconfig, namespace).begin() as operator,
    ):
        job = space.corro_job("a")
        job.wait_for_running(job.workers(0, 0))

        def requests() -> dict[str, int]:
            return {name: n for name, n in proxy.requests().items() if not name.endswith("leases")}

        quiet = QuietFor(3.0)
        wait_until(lambda: quiet.holds(requests()), "nothing but Leases for 3 s")
        before = proxy.requests()
        wait_until(
            lambda: sum((proxy.requests() - before).values()) >= 4, "four renewals of the Lease"
        )
        new = proxy.requests() - before
        assert all(name.endswith("leases") or name.startswith("WATCH") for name in new), new
        operator.stop()
