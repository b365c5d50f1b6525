"""deploy/operator.yaml: it applies, its pods fit Pod Security, its role is enough and no more."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from harness import MANIFESTS, ROOT, Plane, service_account_kubeconfig, wait_until
from jobs import Space, corro_manifest
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


# mpijob different: resume-rights
def test_the_role_is_enough_for_both_kinds_of_jobs(
    deployed: Plane, bare_space: Space, tmp_path: Path
) -> None:
    kubeconfig = service_account_kubeconfig(deployed, tmp_path / "kubeconfig")
    manifests = ["mpijob_v1alpha2_horovod.yaml", "mpijob_v1_elastic.yaml"]
    with OperatorProcess(kubeconfig, bare_space.name, lock_space="corro-system") as operator:
        operator.wait_for("leads")
        jobs = [bare_space.apply(MANIFESTS / manifest) for manifest in manifests]
        for job in [*jobs, bare_space.corro_job("own")]:
            job.wait_for_state("Running")
            suspended = {"suspend": True}
            job.patch(suspended if job.kind == "CorroJob" else {"runPolicy": suspended})
            job.wait_for_state("Suspended")
        assert not [line for line in operator.log() if "Forbidden" in line.get("why", "")]


def test_the_role_in_one_namespace_is_enough_for_that_one(
    deployed: Plane, bare_space: Space, tmp_path: Path
) -> None:
    space = bare_space.name
    deployed.kubectl("create", "serviceaccount", "narrow", "-n", space)
    role, account = "--clusterrole=corro-operator", f"--serviceaccount={space}:narrow"
    deployed.kubectl("create", "rolebinding", "narrow", "-n", space, role, account)
    kubeconfig = service_account_kubeconfig(deployed, tmp_path / "kubeconfig", "narrow", space)
    with OperatorProcess(kubeconfig, space).begin() as operator:
        bare_space.apply(MANIFESTS / "mpijob_v1alpha2_horovod.yaml").wait_for_state("Running")
        elastic = corro_manifest("elastic", 1)
        elastic["spec"]["worker"]["min"] = 1
        bare_space.create(elastic).wait_for_state("Running")
        assert not [line for line in operator.log() if "Forbidden" in line.get("why", "")]
        operator.stop()


def kubeconfig_without(space: Space, resource: str, verb: str, file: Path) -> Path:
    """Of an account that has the operator's rights in the namespace but for one."""
    plane, name = space.plane, space.name
    plane.kubectl("create", "serviceaccount", "narrow", "-n", name)
    documents = yaml.safe_load_all(OPERATOR.read_text())
    rules = [rule for d in documents if d["kind"] in ("ClusterRole", "Role") for rule in d["rules"]]
    for rule in rules:
        if resource in rule["resources"]:
            rule["verbs"].remove(verb)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": rules}
    role["metadata"] = {"name": "narrow", "namespace": name}
    plane.kubectl("apply", "-f", "-", text=yaml.safe_dump(role))
    account = f"--serviceaccount={name}:narrow"
    plane.kubectl("create", "rolebinding", "narrow", "-n", name, "--role=narrow", account)
    return service_account_kubeconfig(plane, file, "narrow", name)


def test_who_may_not_watch_jobs_is_not_ready_and_says_so(bare_space: Space, tmp_path: Path) -> None:
    kubeconfig = kubeconfig_without(bare_space, "corrojobs", "watch", tmp_path / "kubeconfig")
    with OperatorProcess(kubeconfig, bare_space.name).begin() as operator:
        operator.wait_for("cannot watch")
        wait_until(lambda: operator.page("/readyz")[0] == 503, "unreadiness")
        said = operator.page("/readyz")[1]
        assert 'cannot watch resource "corrojobs"' in said
        assert "apply operator.yaml" in said
        operator.stop()


def test_a_job_whose_pods_may_not_be_deleted_is_not_suspended(
    bare_space: Space, tmp_path: Path
) -> None:
    kubeconfig = kubeconfig_without(bare_space, "pods", "delete", tmp_path / "kubeconfig")
    with OperatorProcess(kubeconfig, bare_space.name).begin() as operator:
        job = bare_space.corro_job("a")
        job.wait_for_running(job.workers(0, 0))
        job.patch({"suspend": True})
        what = 'cannot delete resource "pods"'
        status = job.wait(lambda s: what in str(s.get("conditions")), "the right that is missing")
        assert status["state"] == "Running"
        assert what in job.condition("Suspended")["message"]
        assert set(job.pods()) == job.workers(0, 0)
        operator.stop()


def is_allowed(plane: Plane, verb: str, group: str, resource: str) -> bool:
    attributes = {"verb": verb, "group": group, "namespace": "default"}
    attributes["resource"], _, attributes["subresource"] = resource.partition("/")
    review = {"spec": {"user": ACCOUNT, "resourceAttributes": attributes}}
    answer = plane.api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize(
    ("verb", "group", "resource", "allowed"),
    [
        ("create", "", "secrets", True),
        ("get", "", "secrets", False),
        ("list", "", "secrets", False),
        ("create", "", "pods", True),
        ("create", "", "pods/exec", False),
        ("delete", "", "services", False),
        ("patch", "kubeflow.org", "mpijobs/status", True),
        ("update", "kubeflow.org", "mpijobs", False),
        ("create", "rbac.authorization.k8s.io", "roles", True),
        ("update", "rbac.authorization.k8s.io", "roles", False),
        ("escalate", "rbac.authorization.k8s.io", "roles", False),
        ("bind", "rbac.authorization.k8s.io", "roles", False),
        ("delete", "coordination.k8s.io", "leases", False),
        ("get", "", "nodes", False),
    ],
)
def test_the_role_allows_this_and_no_more(
    deployed: Plane, verb: str, group: str, resource: str, allowed: bool
) -> None:
    assert is_allowed(deployed, verb, group, resource) == allowed


def test_it_gives_no_right_that_it_has_not_itself(deployed: Plane) -> None:
    """It makes Roles for the heads of elastic jobs."""
    as_operator = ("-n", "default", "--as", ACCOUNT)
    said = deployed.kubectl(
        "create", "role", "greedy", "--verb=get", "--resource=secrets", *as_operator, fails=True
    )
    assert "attempting to grant RBAC permissions not currently held" in said
