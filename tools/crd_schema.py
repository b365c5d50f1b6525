"""Pieces of an OpenAPI schema as the API server takes it (structural), and CEL rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Schema = dict[str, Any]

OPEN = {"x-kubernetes-preserve-unknown-fields": True}
INT32_MAX = 2**31 - 1


def described(schema: Schema, text: str) -> Schema:
    return {"description": text} | schema


def integer(
    minimum: int | None = None, maximum: int | None = None, default: int | None = None
) -> Schema:
    bits = "int64" if maximum is None or maximum > INT32_MAX else "int32"
    schema: Schema = {"type": "integer", "format": bits}
    for name, value in (("minimum", minimum), ("maximum", maximum), ("default", default)):
        if value is not None:
            schema[name] = value
    return schema


def count(minimum: int = 0, default: int | None = None) -> Schema:
    return integer(minimum, INT32_MAX, default)


def string(**limits: Any) -> Schema:
    names = {"longest": "maxLength", "shortest": "minLength"}
    return {"type": "string"} | {names.get(name, name): value for name, value in limits.items()}


def one_of(*values: str, default: str | None = None) -> Schema:
    schema: Schema = {"type": "string", "enum": list(values)}
    return schema if default is None else schema | {"default": default}


def boolean(default: bool | None = None) -> Schema:
    return {"type": "boolean"} if default is None else {"type": "boolean", "default": default}


def time() -> Schema:
    return {"type": "string", "format": "date-time"}


def struct(properties: Schema, *required: str, rules: list[Schema] | None = None) -> Schema:
    schema: Schema = {"type": "object"}
    if required:
        schema["required"] = list(required)
    schema["properties"] = properties
    return ruled(schema, rules or [])


def mapping(values: Schema, **limits: int) -> Schema:
    return {"type": "object", "additionalProperties": values} | limits


def listing(items: Schema, **limits: Any) -> Schema:
    return {"type": "array", "items": items} | limits


def ruled(schema: Schema, rules: list[Schema]) -> Schema:
    return schema | {"x-kubernetes-validations": rules} if rules else schema


def rule(expression: str, message: str, path: str = "", missing: bool = False) -> Schema:
    """A CEL rule; path: the field that is at fault, below the place where the rule stands."""
    result: Schema = {"rule": expression, "message": message}
    if path:
        result["fieldPath"] = path
    return result | {"reason": "FieldValueRequired"} if missing else result


def pod_template() -> Schema:
    """A PodTemplateSpec of which only the containers' existence is looked at."""
    container = struct({"name": string(shortest=1)}, "name") | OPEN
    spec = struct({"containers": listing(container, minItems=1)}, "containers") | OPEN
    return struct({"metadata": {"type": "object"} | OPEN, "spec": spec}, "spec") | OPEN


def name_of_job() -> Schema:
    """metadata.name: also the first part of host names and of Services, so a DNS-1035 label."""
    return struct({"name": string(longest=54, pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$")})


PROGRESS = [
    ("Epoch", "integer", ".status.progress.epoch", "How often the ranks of an elastic job changed"),
    ("Ranks", "integer", ".status.progress.ranks", "Ranks that take part"),
    ("Step", "integer", ".status.progress.step", "The newest step of the ranks"),
    ("Steps/s", "number", ".status.progress.stepsPerSecond", "Steps a second, of the last ten"),
    ("Plan", "string", ".status.progress.plan", "The name of the plan that was loaded last"),
    (
        "Checkpoint",
        "integer",
        ".status.progress.lastCheckpoint.step",
        "The step of the last checkpoint that is durable",
    ),
    ("Last change", "string", ".status.progress.lastChange", "Who takes part since when, and why"),
]


def columns() -> list[Schema]:
    """What `kubectl get` shows: both kinds have these fields in their status."""
    shown = [
        ("State", "string", ".status.state", "Where the job is"),
        ("Ready", "integer", ".status.ready", "Worker pods that are ready"),
        ("Desired", "integer", ".status.desired", "Worker pods that are wanted"),
        ("Restarts", "integer", ".status.restarts", "How often ranks began anew after a failure"),
        ("Age", "date", ".metadata.creationTimestamp", ""),
    ]
    return [
        {"name": name, "type": kind, "jsonPath": path} | ({"description": text} if text else {})
        for name, kind, path, text in shown
    ]


def job_status() -> Schema:
    """The fields of both kinds' status; docs/design/0022-kubernetes-jobs.md says what they mean."""
    number = integer(maximum=INT32_MAX)
    causes = struct(dict.fromkeys(("userError", "lostPod", "outOfMemory"), number))
    condition = struct(
        {
            "type": string(),
            "status": one_of("True", "False", "Unknown"),
            "reason": string(),
            "message": string(),
            "lastUpdateTime": time(),
            "lastTransitionTime": time(),
            "observedGeneration": integer(),
        },
        "type",
        "status",
    )
    member = struct(
        {
            "generation": number,
            "seen": boolean(),
            "done": boolean(),
            "failures": number,
            "notBefore": time(),
        }
    )
    by_type = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return {
        "state": string(),
        "conditions": listing(condition, **by_type),
        "observedGeneration": integer(),
        "desired": number,
        "ready": number,
        "restarts": number,
        "restartCounts": causes,
        "startTime": time(),
        "completionTime": time(),
        "lastRestartTime": time(),
        "nextActionTime": time(),
        "round": number,
        "ranInRound": boolean(),
        "agentImage": string(),
        "streaks": causes,
        "members": mapping(member),
    }


def custom_resource(group: str, names: Schema, versions: list[Schema]) -> Schema:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "conversion": {"strategy": "None"},
            "versions": versions,
        },
    }


def wide_columns() -> list[Schema]:
    """What `kubectl get -o wide` shows beside, of an elastic job."""
    return [
        {"name": name, "type": kind, "jsonPath": path, "description": text, "priority": 1}
        for name, kind, path, text in PROGRESS
    ]


def progress() -> Schema:
    """What the head of an elastic job tells of its ranks."""
    number = integer(maximum=INT32_MAX)
    return struct(
        {
            "epoch": number,
            "ranks": number,
            "step": integer(),
            "stepsPerSecond": {"type": "number"},
            "plan": string(),
            "lastCheckpoint": struct({"step": integer(), "time": time(), "path": string()}),
            "lastChange": string(),
            "lastChangeTime": time(),
        }
    )


def version(
    name: str, stored: bool, schema: Schema, scale: Schema, wide: Sequence[Schema] = ()
) -> Schema:
    return {
        "name": name,
        "served": True,
        "storage": stored,
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": [*columns(), *wide],
        "schema": {"openAPIV3Schema": schema},
    }
