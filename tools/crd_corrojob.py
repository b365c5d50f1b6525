"""CorroJob of training.corro.dev: docs/design/0022-kubernetes-jobs.md has its table of fields."""

from __future__ import annotations

from crd_pod import pod_template_in_detail
from crd_schema import (
    OPEN,
    Schema,
    boolean,
    count,
    custom_resource,
    described,
    integer,
    job_status,
    listing,
    name_of_job,
    one_of,
    progress,
    rule,
    string,
    struct,
    version,
    wide_columns,
)

GANGS = ("Auto", "Off", "Native", "Volcano", "SchedulerPlugins")
MANAGERS = ("training.corro.dev/operator", "kueue.x-k8s.io/multikueue")
LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"  # DNS-1123
LABEL_VALUE = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def definition() -> Schema:
    names = {
        "kind": "CorroJob",
        "listKind": "CorroJobList",
        "plural": "corrojobs",
        "singular": "corrojob",
        "shortNames": ["corro"],  # "cj" is CronJob's.
    }
    schema = struct(
        {
            "apiVersion": string(),
            "kind": string(),
            "metadata": name_of_job(),
            "spec": _spec(),
            "status": struct(job_status() | {"selector": string(), "progress": progress()}),
        },
        "spec",
        rules=[_name_fits()],
    )
    scale = {
        "specReplicasPath": ".spec.worker.target",
        "statusReplicasPath": ".status.ready",
        "labelSelectorPath": ".status.selector",
    }
    return custom_resource(
        "training.corro.dev", names, [version("v1", True, schema, scale, wide_columns())]
    )


def _name_fits() -> Schema:
    most = "has(self.spec.worker.max) ? self.spec.worker.max : self.spec.worker.target"
    return rule(
        f"size(self.metadata.name) + 8 + size(string(({most}) - 1)) <= 63",
        "too long: the last worker's host name, <name>-worker-<max-1>, has more than 63 characters",
        ".metadata.name",
    )


DESCRIPTIONS = {
    "worker": "The pods that run the ranks.",
    "target": "Worker pods wanted. May change: ranks start again, unless the job is elastic.",
    "min": "Makes the job elastic: it goes on with so few worker pods while others come and go.",
    "max": "Most worker pods; the target if unset. An elastic job needs it.",
    "slots": "Ranks of each worker pod.",
    "template": "The pod; restartPolicy Never. Container 0 runs under corro's agent.",
    "server": "Reserved.",
    "coordinator": "Reserved.",
    "data": "Volumes with training data, mounted in every worker.",
    "checkpoint": "The volume of the script's own checkpoints, mounted in every worker.",
    "sync": "The folder that `corro run --sync` brings to the pods before ranks start in it.",
    "name": "The volume's name; data-<i> if unset.",
    "claim": "The PersistentVolumeClaim's name.",
    "mountPath": "The absolute path of the mount.",
    "subPath": "A folder of the volume to mount instead of its root.",
    "readOnly": "True if unset.",
    "priorityClass": "PriorityClass of the pods; wins over the template's.",
    "queue": "Queue of the PodGroup, or Kueue's queue label where no gang has queues.",
    "gang": "Who starts the pods together: Auto takes the first that the cluster serves.",
    "restart": "How often the ranks start again, by the cause of the end.",
    "userError": "An exit code that is not 0.",
    "lostPod": "Evicted, preempted, deleted, or its node lost.",
    "outOfMemory": "A container that the kernel killed for memory.",
    "limit": "Restarts before the job fails.",
    "backoffSeconds": "Before the first restart; doubles with each.",
    "maxBackoffSeconds": "Where doubling ends.",
    "resetAfterSeconds": "After all ran so long, counts against the limits begin anew.",
    "activeDeadlineSeconds": "The job fails so long after startTime; suspended time is free.",
    "ttlSecondsAfterFinished": "The job is deleted so long after its end.",
    "suspend": "Pods go, the rest stays; false begins a new round.",
    "managedBy": "Another controller, which then has the job to itself.",
}


def _explain(properties: Schema) -> Schema:
    """Puts each field's description first, for `kubectl explain`."""
    return {name: described(schema, DESCRIPTIONS[name]) for name, schema in properties.items()}


def _spec() -> Schema:
    properties = {
        "worker": _worker(),
        "server": {"type": "object"} | OPEN,
        "coordinator": {"type": "object"} | OPEN,
        "data": _data(),
        "checkpoint": _checkpoint(),
        "sync": string(longest=255, pattern="^/workspace/[^/:]+$"),
        "priorityClass": string(shortest=1, longest=253, pattern=SUBDOMAIN),
        "queue": string(longest=63, pattern=LABEL_VALUE),
        "gang": one_of(*GANGS, default="Auto"),
        "restart": _restart(),
        "activeDeadlineSeconds": count(1),
        "ttlSecondsAfterFinished": count(),
        "suspend": boolean(default=False),
        "managedBy": one_of(*MANAGERS),
    }
    rules = [
        rule(f"!has(self.{name})", "is reserved", f".{name}") for name in ("server", "coordinator")
    ]
    rules += [_fixed(name) for name in ("data", "checkpoint", "sync", "gang", "managedBy")]
    rules += [_fixed_unless_suspended(name) for name in ("priorityClass", "queue")]
    rules.append(_fixed_unless_suspended("template", "worker."))
    return struct(_explain(properties), "worker", rules=rules)


def _same(field: str) -> str:
    return (
        f"has(self.{field}) == has(oldSelf.{field}) && "
        f"(!has(self.{field}) || self.{field} == oldSelf.{field})"
    )


def _fixed(field: str) -> Schema:
    return rule(_same(field), "is fixed once the job is created", f".{field}")


def _fixed_unless_suspended(field: str, within: str = "") -> Schema:
    return rule(
        f"(self.suspend && oldSelf.suspend) || ({_same(within + field)})",
        "is fixed unless the job is suspended, and was before",
        f".{within}{field}",
    )


def _in_order(optional: str, less: str, more: str) -> Schema:
    """`kubectl scale` changes the target alone, so the message has both fields."""
    return rule(
        f"!has(self.{optional}) || self.{less} <= self.{more}",
        f"worker.{less} is more than worker.{more}",
        f".{optional}",
    )


def _worker() -> Schema:
    properties = {
        "target": integer(1, 10000),
        "min": integer(1, 10000),
        "max": integer(1, 10000),
        "slots": integer(1, 1024, default=1),
        "template": pod_template_in_detail(),
    }
    rules = [
        _in_order("min", "min", "target"),
        _in_order("max", "target", "max"),
        # The head of an elastic job gets its limit once, so a target cannot stand in for it.
        rule("!has(self.min) || has(self.max)", "is needed with worker.min", ".max"),
        *(_fixed(name) for name in ("min", "max", "slots")),
    ]
    return struct(_explain(properties), "target", "template", rules=rules)


def _volume(path: Schema) -> Schema:
    return {
        "claim": string(shortest=1, longest=253, pattern=SUBDOMAIN),
        "mountPath": path,
        "subPath": string(longest=1024),
    }


def _data() -> Schema:
    path = string(shortest=2, longest=1024, pattern="^/[^:]*$")
    properties = {"name": string(longest=40, pattern=LABEL)} | _volume(path)
    # A default in a list would make each `kubectl apply` say "configured": the operator knows it.
    properties["readOnly"] = boolean()
    entry = struct(_explain(properties), "claim", "mountPath")
    rules = [
        rule("self.all(a, self.exists_one(b, a.mountPath == b.mountPath))", "mountPath twice"),
        rule(
            "self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && a.name == b.name))",
            "name twice",
        ),
    ]
    return listing(entry, maxItems=16) | {"x-kubernetes-validations": rules}


def _checkpoint() -> Schema:
    path = string(shortest=2, longest=1024, pattern="^/[^:]*$", default="/checkpoint")
    return struct(_explain(_volume(path)), "claim")


def _restart() -> Schema:
    def cause(limit: int, backoff: int, longest: int) -> Schema:
        in_order = rule(
            "self.backoffSeconds <= self.maxBackoffSeconds",
            "at most maxBackoffSeconds",
            ".backoffSeconds",
        )
        properties = {
            "limit": integer(0, 10000, default=limit),
            "backoffSeconds": integer(0, 3600, default=backoff),
            "maxBackoffSeconds": integer(0, 86400, default=longest),
        }
        # In full: a rule on a default does not see the fields' own defaults.
        whole = {name: schema["default"] for name, schema in properties.items()}
        return struct(_explain(properties), rules=[in_order]) | {"default": whole}

    properties = {
        "userError": cause(3, 10, 300),
        "lostPod": cause(1000, 1, 60),
        "outOfMemory": cause(1, 10, 300),
        "resetAfterSeconds": integer(1, 86400, default=600),
    }
    return struct(_explain(properties)) | {"default": {}}
