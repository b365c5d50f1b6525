"""A PodTemplateSpec to its first two levels: what CorroJob's rules need to compare two of them.

CEL compares an object's unknown fields, but takes two objects for equal if each has one unknown
field that the other lacks. So the fields of a pod and of a container are named here, with their
types: a `command` that is a string is then refused at admission too. What a later Kubernetes adds
is kept, like all that is below.
"""

from __future__ import annotations

from crd_schema import OPEN, Schema, listing, one_of, string, struct

OBJECT = {"type": "object"} | OPEN
KINDS: dict[str, Schema] = {
    "object": OBJECT,
    "objects": listing(OBJECT),
    "string": {"type": "string"},
    "strings": listing({"type": "string"}),
    "integer": {"type": "integer", "format": "int64"},
    "boolean": {"type": "boolean"},
}
POD = {
    "object": "affinity dnsConfig nodeSelector os overhead resources schedulingGroup "
    "securityContext",
    "objects": "ephemeralContainers hostAliases imagePullSecrets initContainers readinessGates "
    "resourceClaims schedulingGates tolerations topologySpreadConstraints volumes",
    "string": "dnsPolicy hostname hostnameOverride nodeName preemptionPolicy priorityClassName "
    "runtimeClassName schedulerName serviceAccount serviceAccountName subdomain",
    "integer": "activeDeadlineSeconds priority terminationGracePeriodSeconds",
    "boolean": "automountServiceAccountToken enableServiceLinks hostIPC hostNetwork hostPID "
    "hostUsers setHostnameAsFQDN shareProcessNamespace",
}
CONTAINER = {
    "object": "lifecycle livenessProbe readinessProbe resources securityContext startupProbe",
    "objects": "env envFrom ports resizePolicy restartPolicyRules volumeDevices volumeMounts",
    "string": "image imagePullPolicy restartPolicy terminationMessagePath "
    "terminationMessagePolicy workingDir",
    "strings": "args command",
    "boolean": "stdin stdinOnce tty",
}


def _fields(table: dict[str, str]) -> Schema:
    return {name: KINDS[kind] for kind, names in table.items() for name in names.split()}


def pod_template_in_detail() -> Schema:
    """The template of pods that are made once: restartPolicy Never, or unset."""
    container = struct({"name": string(shortest=1)} | _fields(CONTAINER), "name") | OPEN
    containers = listing(container, minItems=1)
    spec = {"containers": containers, "restartPolicy": one_of("Never")} | _fields(POD)
    metadata = struct(dict.fromkeys(("labels", "annotations"), OBJECT)) | OPEN
    properties = {"metadata": metadata, "spec": struct(spec, "containers") | OPEN}
    return struct(properties, "spec") | OPEN
