"""The record store in a Lease and a ConfigMap (cpp/src/coordinator) on a real API server."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import ROOT, Plane, service_account_kubeconfig, wait_until
from operator_process import PROGRAM

BUILT = [
    ROOT / "build" / preset / "cpp/src/coordinator/coordinator_test"
    for preset in ("release", "dev")
]


@pytest.fixture
def program() -> Path:
    """The gtest program."""
    built = [path for path in BUILT if path.exists()]
    if not built:
        pytest.skip("coordinator_test was not built")
    return built[0]


def run(program: Path, kubeconfig: Path, cases: str, **variables: str) -> None:
    """All of these cases run, and pass."""
    done = subprocess.run(
        [program, f"--gtest_filter={cases}"],
        # The report that the caller may have been told to write is its own.
        env={name: value for name, value in os.environ.items() if name != "GTEST_OUTPUT"}
        | {"CORRO_TEST_KUBERNETES": str(kubeconfig), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[  PASSED  ]" in done.stdout
    assert "[  SKIPPED ]" not in done.stdout, done.stdout
    assert " 0 tests " not in done.stdout, done.stdout


def admin_kubeconfig(plane: Plane, namespace: str, target: Path) -> Path:
    """The plane's kubeconfig, with its context in that namespace."""
    config = yaml.safe_load((plane.folder / "admin.kubeconfig").read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    target.touch(mode=0o600)
    target.write_text(json.dumps(config))
    return target


def give_rights(plane: Plane, namespace: str, name: str, rules: list[dict[str, Any]]) -> None:
    """A service account of that name, which may do so much once this returns."""
    rbac = "rbac.authorization.k8s.io"
    metadata = {"name": name}
    plane.api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": metadata})
    plane.api.post(
        f"/apis/{rbac}/v1/namespaces/{namespace}/roles", {"metadata": metadata, "rules": rules}
    )
    plane.api.post(
        f"/apis/{rbac}/v1/namespaces/{namespace}/rolebindings",
        {
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    )
    for rule in rules:
        asked = {
            "namespace": namespace,
            "group": rule["apiGroups"][0],
            "resource": rule["resources"][0],
            "name": rule["resourceNames"][0],
            "verb": rule["verbs"][0],
        }
        user = f"system:serviceaccount:{namespace}:{name}"
        review = {"spec": {"user": user, "resourceAttributes": asked}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        wait_until(partial(is_allowed, plane, path, review), "the rights of the account")


def is_allowed(plane: Plane, path: str, review: dict[str, Any]) -> bool:
    return bool(plane.api.post(path, review)["status"]["allowed"])


def test_the_store_does_what_every_record_store_does(
    plane: Plane, namespace: str, program: Path, tmp_path: Path
) -> None:
    config = admin_kubeconfig(plane, namespace, tmp_path / "config")
    run(program, config, "RealKubernetes/RecordStoreSuite.*:RealKubernetes.*")


def test_get_and_update_of_two_objects_are_enough(
    plane: Plane, namespace: str, program: Path, tmp_path: Path
) -> None:
    """As the operator is to make them for the head of a job."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    plane.api.post(leases, {"metadata": {"name": "job-head"}})
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    plane.api.post(maps, {"metadata": {"name": "job-record", "labels": {"job": "job"}}})
    verbs = ["get", "update"]
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    record = {"apiGroups": [""], "resources": ["configmaps"]}
    rules = [
        lease | {"resourceNames": ["job-head"], "verbs": verbs},
        record | {"resourceNames": ["job-record"], "verbs": verbs},
    ]
    give_rights(plane, namespace, "head", rules)
    config = service_account_kubeconfig(plane, tmp_path / "config", "head", namespace)
    run(program, config, "KubernetesRights.*", CORRO_TEST_KUBERNETES_JOB="job")
    assert plane.api.get(f"{leases}/job-head")["spec"]["leaseTransitions"] == 1
    kept = plane.api.get(f"{maps}/job-record")
    assert kept["metadata"]["labels"] == {"job": "job"}
    assert kept["data"]["term"] == "1"


def free_port() -> int:
    """A port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def started(
    log: Path, words: list[str], environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A program of corro's, which says what it says into `log`, and ends with the block."""
    with log.open("w") as out:
        process = subprocess.Popen([PROGRAM, *words], env=environment, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_another_coordinator_goes_on_with_the_job_of_one_that_was_killed(
    plane: Plane, namespace: str, tmp_path: Path
) -> None:
    config = admin_kubeconfig(plane, namespace, tmp_path / "config")
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    environment = os.environ | {"KUBECONFIG": str(config), "CORRO_SECRET_FILE": str(secret)}
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    job = ["sh", "-c", f"echo begun; until [ -e {tmp_path}/end ]; do sleep 0.1; done; echo ends"]
    logs = [tmp_path / "first", tmp_path / "second"]

    def coordinator(number: int) -> list[str]:
        store = ["--store", "kubernetes:job"]
        return ["coordinator", *store, "--listen", addresses[number], "-np", "1", *job]

    agent = ["agent", "--coordinator", ",".join(addresses), "--host", "a", "--slots", "1"]
    with (
        started(tmp_path / "agent", agent, environment) as worker,
        started(logs[0], coordinator(0), environment) as first,
        started(logs[1], coordinator(1), environment) as second,
    ):
        wait_until(lambda: any("begun" in log.read_text() for log in logs), "the job's begin")
        leads = 0 if "leads in term 1" in logs[0].read_text() else 1
        standby = logs[1 - leads]
        wait_until(lambda: "stands by" in standby.read_text(), "one that stands by")
        (first, second)[leads].kill()
        wait_until(lambda: "leads in term 2" in standby.read_text(), "the next leader")
        (tmp_path / "end").touch()
        assert (first, second)[1 - leads].wait(timeout=60) == 0, standby.read_text()
        assert worker.wait(timeout=60) == 0
    assert "ends" in standby.read_text()
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/job-head"
    spec = plane.api.get(lease)["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("", 2)
