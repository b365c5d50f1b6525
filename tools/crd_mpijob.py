"""MPIJob of kubeflow.org: one schema, the union of the four versions, and the rules of each."""

from __future__ import annotations

from crd_schema import (
    INT32_MAX,
    Schema,
    boolean,
    count,
    custom_resource,
    described,
    integer,
    job_status,
    listing,
    mapping,
    name_of_job,
    one_of,
    pod_template,
    rule,
    ruled,
    string,
    struct,
    time,
    version,
)

VERSIONS = ("v1alpha1", "v1alpha2", "v1", "v2beta1")
STORED = "v2beta1"
CLEAN_POD_POLICIES = ("None", "Running", "All")
MANAGERS = ("kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue", "training.corro.dev/operator")

# Which versions have a field that not all have.
ONLY_IN = {
    "gpus": ("v1alpha1",),
    "gpusPerNode": ("v1alpha1",),
    "processingUnits": ("v1alpha1",),
    "processingUnitsPerNode": ("v1alpha1",),
    "processingResourceType": ("v1alpha1",),
    "launcherOnMaster": ("v1alpha1",),
    "replicas": ("v1alpha1",),
    "template": ("v1alpha1",),
    "backoffLimit": ("v1alpha1", "v1alpha2"),
    "activeDeadlineSeconds": ("v1alpha1", "v1alpha2"),
    "cleanPodPolicy": ("v1alpha2", "v1"),
    "mainContainer": ("v1alpha2", "v1"),
    "mpiDistribution": ("v1alpha2",),
    "mpiReplicaSpecs": ("v1alpha2", "v1", "v2beta1"),
    "runPolicy": ("v1alpha2", "v1", "v2beta1"),
    "runLauncherAsWorker": ("v2beta1",),
    "sshAuthMountPath": ("v2beta1",),
    "launcherCreationPolicy": ("v2beta1",),
    "mpiImplementation": ("v2beta1",),
}


def definition() -> Schema:
    names = {
        "kind": "MPIJob",
        "listKind": "MPIJobList",
        "plural": "mpijobs",
        "singular": "mpijob",
        "shortNames": ["mj", "mpij"],
    }
    return custom_resource("kubeflow.org", names, [_version(name) for name in VERSIONS])


def _version(name: str) -> Schema:
    replicas = ".spec.replicas" if name == "v1alpha1" else ".spec.mpiReplicaSpecs.Worker.replicas"
    scale = {"specReplicasPath": replicas, "statusReplicasPath": ".status.ready"}
    schema = struct(
        {
            "apiVersion": string(),
            "kind": string(),
            "metadata": name_of_job(),
            "spec": _spec(name),
            "status": _status(),
        },
        "spec",
        rules=[_name_fits()],
    )
    return version(name, name == STORED, schema, scale)


def _name_fits() -> Schema:
    replicas = "self.spec.mpiReplicaSpecs.Worker.replicas"
    workers = (
        "has(self.spec.replicas) ? self.spec.replicas : "
        "has(self.spec.mpiReplicaSpecs) && has(self.spec.mpiReplicaSpecs.Worker) && "
        f"has({replicas}) && {replicas} > 0 ? {replicas} : 1"
    )
    return rule(
        f"size(self.metadata.name) + 8 + size(string(({workers}) - 1)) <= 63",
        "too long: the last worker's host name, <name>-worker-<n-1>, has more than 63 characters",
        ".metadata.name",
    )


def _spec(name: str) -> Schema:
    units = [
        rule("self in [1, 2, 4] || (self >= 8 && self % 8 == 0)", "1, 2, 4 or a multiple of 8")
    ]
    written = rule("self == oldSelf", "is fixed: the version that the job was created with")
    properties = {
        "writtenAs": described(
            ruled(one_of(*VERSIONS, default=name), [written]),
            "The version that this job was written for: its defaults and rules hold. Leave it out.",
        ),
        "slotsPerWorker": count(),
        "gpus": ruled(count(1), units),
        "gpusPerNode": count(1),
        "processingUnits": ruled(count(1), units),
        "processingUnitsPerNode": count(1),
        "processingResourceType": one_of("nvidia.com/gpu", "cpu"),
        "launcherOnMaster": boolean(),
        "replicas": count(1),
        "template": pod_template(),
        "backoffLimit": count(),
        "activeDeadlineSeconds": integer(0),
        "cleanPodPolicy": one_of(*CLEAN_POD_POLICIES),
        "mainContainer": string(),
        "mpiDistribution": one_of("OpenMPI", "IntelMPI", "MPICH"),
        "mpiReplicaSpecs": _replica_specs(),
        "runPolicy": _run_policy(),
        "runLauncherAsWorker": boolean(),
        "sshAuthMountPath": string(shortest=1, pattern="^[^:]*$"),
        "launcherCreationPolicy": one_of("AtStartup", "WaitForWorkersReady"),
        "mpiImplementation": one_of("OpenMPI", "Intel", "MPICH"),
    }
    foreign = [_only_in(field, versions) for field, versions in ONLY_IN.items()]
    return struct(properties, rules=foreign + _spec_rules())


def _only_in(field: str, versions: tuple[str, ...]) -> Schema:
    known = ", ".join(f"'{version}'" for version in versions)
    others = f"; it is in {', '.join(versions)}"
    foreign = rule(
        f"self.writtenAs in [{known}] || !has(self.{field})",
        f"is no field of the version in spec.writtenAs{others}",
        f".{field}",
    )
    return foreign | {"messageExpression": f"'is no field of ' + self.writtenAs + '{others}'"}


def _spec_rules() -> list[Schema]:
    old = "self.writtenAs == 'v1alpha1'"
    new = "self.writtenAs == 'v2beta1'"
    worker = "self.mpiReplicaSpecs.Worker"
    launcher_works = "has(self.runLauncherAsWorker) && self.runLauncherAsWorker"
    amounts = "has(self.gpus), has(self.processingUnits), has(self.replicas)"
    manager = "has({0}.runPolicy) && has({0}.runPolicy.managedBy) ? {0}.runPolicy.managedBy : ''"
    rules = [
        rule(
            f"!({old}) || [{amounts}].exists_one(given, given)",
            "exactly one of gpus, processingUnits and replicas",
            ".replicas",
        ),
        rule(f"!({old}) || has(self.template)", "is missing", ".template", missing=True),
        rule(f"{old} || has(self.mpiReplicaSpecs)", "is missing", ".mpiReplicaSpecs", missing=True),
        rule(
            f"{new} || !has(self.slotsPerWorker) || self.slotsPerWorker >= 1",
            "at least 1",
            ".slotsPerWorker",
        ),
        rule(
            f"!has(self.mpiReplicaSpecs) || !has({worker}) || !has({worker}.replicas) || "
            f"{worker}.replicas >= 1 || ({launcher_works})",
            "at least 1, or 0 with runLauncherAsWorker",
            ".mpiReplicaSpecs.Worker.replicas",
        ),
        rule(
            f"!({new}) || !has(self.mpiReplicaSpecs) || !has({worker}) || has({worker}.replicas) "
            f"|| ({launcher_works})",
            "is missing: v2beta1 has no workers by default",
            ".mpiReplicaSpecs.Worker.replicas",
            missing=True,
        ),
        rule(
            f"({manager.format('self')}) == ({manager.format('oldSelf')})",
            "is fixed once the job is created",
            ".runPolicy.managedBy",
        ),
    ]
    rules += [_multiple_of_node(units) for units in ("gpus", "processingUnits")]
    return rules + [_restart_policy(role) for role in ("Launcher", "Worker")]


def _multiple_of_node(units: str) -> Schema:
    mine, node = f"self.{units}", f"self.{units}PerNode"
    return rule(
        f"!has({mine}) || !has({node}) || {mine} < {node} || {mine} % {node} == 0",
        f"a multiple of {units}PerNode, or less than it",
        f".{units}",
    )


def _restart_policy(role: str) -> Schema:
    policy = f"self.mpiReplicaSpecs.{role}.restartPolicy"
    return rule(
        "self.writtenAs != 'v2beta1' || !has(self.mpiReplicaSpecs) || "
        f"!has(self.mpiReplicaSpecs.{role}) || !has({policy}) || "
        f"{policy} in ['Never', 'OnFailure']",
        "in v2beta1 Never or OnFailure",
        f".mpiReplicaSpecs.{role}.restartPolicy",
    )


def _replica_specs() -> Schema:
    """Both roles by name, not a map: so each message has a field's path as the manifest has it."""

    def role(replicas: Schema) -> Schema:
        policies = one_of("Always", "OnFailure", "Never", "ExitCode")
        properties = {"replicas": replicas, "restartPolicy": policies, "template": pod_template()}
        return struct(properties, "template")

    one = ruled(integer(maximum=INT32_MAX), [rule("self == 1", "must be 1")])
    return struct({"Launcher": role(one), "Worker": role(count())}, "Launcher")


def _run_policy() -> Schema:
    scheduling = struct(
        {
            "minAvailable": count(),
            "queue": string(),
            "minResources": mapping({"x-kubernetes-int-or-string": True}),
            "priorityClass": string(),
            "scheduleTimeoutSeconds": count(),
        }
    )
    return struct(
        {
            "cleanPodPolicy": one_of(*CLEAN_POD_POLICIES),
            "ttlSecondsAfterFinished": count(),
            "activeDeadlineSeconds": integer(0),
            "backoffLimit": count(),
            "suspend": boolean(),
            "managedBy": one_of(*MANAGERS),
            "schedulingPolicy": scheduling,
        }
    )


def _status() -> Schema:
    number = integer(maximum=INT32_MAX)
    requirement = struct(
        {"key": string(), "operator": string(), "values": listing(string())}, "key", "operator"
    )
    selector = struct({"matchLabels": mapping(string()), "matchExpressions": listing(requirement)})
    replica = struct(
        {
            "active": number,
            "succeeded": number,
            "failed": number,
            "labelSelector": selector,
            "selector": string(),
        }
    )
    own = {
        "replicaStatuses": mapping(replica),
        "lastReconcileTime": time(),
        "launcherStatus": one_of("Active", "Succeeded", "Failed"),
        "workerReplicas": number,
    }
    return struct(job_status() | own)
