"""deploy/operator.yaml: it applies, its pods fit Pod Security, its role is enough and no more."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from harness import MANIFESTS, ROOT, Plane, wait_until
from operator_process import OperatorProcess

OPERATOR = ROOT / "deploy" / "operator.yaml"
ACCOUNT = "system:serviceaccount:corro-system:corro-operator"


@pytest.fixture(scope="module")
def deployed(crds: Plane) -> Iterator[Plane]:
    """The manifests without the Deployment: no node here runs its image."""
    documents = [d for d in yaml.safe_load_all(OPERATOR.read_text()) if d["kind"] != "Deployment"]
    crds.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(documents))
    yield crds
    crds.kubectl("delete", "--ignore-not-found", "-f", "-", text=yaml.safe_dump_all(documents))


def service_account_kubeconfig(plane: Plane, target: Path) -> Path:
    """The plane's kubeconfig with the operator's own token in place of the administrator."""
    token = plane.kubectl("create", "token", "corro-operator", "-n", "corro-system").strip()
    config = yaml.safe_load((plane.folder / "admin.kubeconfig").read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    config["contexts"][0]["context"]["namespace"] = "corro-system"
    target.touch(mode=0o600)
    target.write_text(json.dumps(config))
    return target


def job_is(plane: Plane, path: str, state: str) -> bool:
    return bool((plane.api.get(path).get("status") or {}).get("state") == state)


def test_the_deployment_is_taken_in_its_restricted_namespace(deployed: Plane) -> None:
    warned = subprocess.run(
        [deployed.folder / "bin" / "kubectl", "apply", "--dry-run=server", "-f", OPERATOR],
        env={"KUBECONFIG": str(deployed.folder / "admin.kubeconfig"), "HOME": str(deployed.folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "deployment.apps/corro-operator" in warned.stdout
    assert "Warning" not in warned.stderr


def test_the_role_is_enough_for_both_kinds_of_jobs(
    deployed: Plane, namespace: str, tmp_path: Path
) -> None:
    kubeconfig = service_account_kubeconfig(deployed, tmp_path / "kubeconfig")
    jobs = {
        "mpijob_v1alpha2_horovod.yaml": "kubeflow.org/v2beta1/namespaces/{}/mpijobs",
        "mpijob_v1_elastic.yaml": "kubeflow.org/v2beta1/namespaces/{}/mpijobs",
        "corrojob.yaml": "training.corro.dev/v1/namespaces/{}/corrojobs",
    }
    with OperatorProcess(kubeconfig, namespace, lock_space="corro-system") as operator:
        operator.wait_for("leads")
        paths = []
        for manifest, place in jobs.items():
            job = yaml.safe_load((MANIFESTS / manifest).read_text())
            job["metadata"]["namespace"] = namespace
            deployed.kubectl("apply", "-f", "-", text=json.dumps(job))
            paths.append(f"/apis/{place.format(namespace)}/{job['metadata']['name']}")
        for path in paths:
            wait_until(partial(job_is, deployed, path, "Running"), f"{path} to run")
            deployed.api.patch(path, suspension(path))
            wait_until(partial(job_is, deployed, path, "Suspended"), f"{path} to be suspended")
        assert not [line for line in operator.log() if "Forbidden" in line.get("why", "")]


def suspension(path: str) -> dict[str, object]:
    return {"spec": {"suspend": True} if "corrojobs" in path else {"runPolicy": {"suspend": True}}}


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("get", "secrets"),
        ("list", "secrets"),
        ("delete", "services"),
        ("create", "pods/exec"),
        ("update", "mpijobs.kubeflow.org"),
        ("create", "roles.rbac.authorization.k8s.io"),
        ("get", "nodes"),
    ],
)
def test_the_role_allows_no_more(deployed: Plane, verb: str, resource: str) -> None:
    answer = deployed.kubectl("auth", "can-i", verb, resource, "--as", ACCOUNT, fails=True)
    assert answer.strip() == ""
