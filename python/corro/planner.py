"""`corro.plan()`: how to train a model on given machines, with the proof of it. No GPU is needed.

    planned = corro.plan("gpt3-175b", "cluster.yaml", global_batch=1536)
    print(planned)  # What `corro plan` prints; a notebook shows a table.
    print(planned.step, planned.memory[0].total, planned.why)
    corro.load_plan(planned.graph)

A model of one's own is recorded; that alone needs torch:

    planned = corro.plan((module, inputs, loss), "cluster.yaml")
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

try:
    from corro import _planner
except ImportError as error:
    message = f"this corro was installed without the planner ({error}); install the whole wheel"
    raise ImportError(message) from error
from corro.errors import InvalidArgumentError
from corro.model import ModelDescription
from corro.planned import Planned, Shape, planned_of

STRATEGIES: Mapping[str, tuple[str, object]] = {
    "tensor": ("tensor", 1),
    "context": ("context", 1),
    "expert": ("expert", 1),
    "data": ("data", 1),
    "pipeline": ("pipeline", 1),
    "interleaving": ("chunks", 1),
    "sharding": ("zero", 0),
    "sequence": ("sequence_parallel", False),
    "recompute": ("recompute", "none"),
    "overlap": ("overlap", False),
    "offload": ("offload", "off"),
}
"""What may be allowed or not, and the pin that stands for "not"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CutQuestion:
    """Where to cut the chain of layers into `shape.pipeline` stages.

    The answer: the first layer of each stage, ascending from 0.
    """

    shape: Shape
    seconds: tuple[float, ...]
    """Of each layer, forward and backward of a micro-batch."""
    memory: tuple[float, ...]
    """Bytes that each layer takes with one micro-batch."""
    memory_limit: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleQuestion:
    """How far each stage's forward may run ahead of its backward.

    The answer: 1 to `most` micro-batches for each stage.
    """

    shape: Shape
    forward: tuple[float, ...]
    """Seconds of a micro-batch, by stage."""
    backward: tuple[float, ...]
    most: tuple[int, ...]
    """Micro-batches whose activations fit, by stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementQuestion:
    """Which device is which rank; ranks are numbered tensor first, then context, data, pipeline.

    The answer: a device for each rank.
    """

    shape: Shape
    devices: int
    bandwidth: Callable[[int, int], float]
    """Bytes a second between two devices; to be asked before the answer alone."""
    bytes: tuple[float, ...]
    """A step's, over a link of the tensor, context, data and pipeline axis."""


QUESTIONS: Mapping[str, type[Any]] = {
    "cut": CutQuestion,
    "schedule": ScheduleQuestion,
    "placement": PlacementQuestion,
}


def plan(
    model: object,
    cluster: object,
    *,
    samples: float | None = None,
    bytes_per_sample: float | str | None = None,
    objective: str = "time",
    trainer: str = "corro",
    global_batch: int | None = None,
    memory_limit: float | str | None = None,
    sequence: int | None = None,
    strategies: Iterable[str] | None = None,
    pins: Mapping[str, object] | None = None,
    params: object = None,
    profile: object = None,
    policies: Iterable[object] = (),
) -> Planned:
    """Returns the best way to train `model` on `cluster`, and the proof of how good it is.

    Args:
        model: the path of a model file, a config.json or a short description; the name of a known
            model; a ModelDescription; or (module, inputs) or (module, inputs, loss) to record.
        cluster: the path of a cluster file, or a mapping with its fields.
        samples: of the whole training.
        bytes_per_sample: what storage delivers for each, bytes or text as "16 KiB".
        objective: "time", "cost" or "samples_per_price".
        trainer: who is to run the plan, "corro" or "megatron": what it can do bounds the search.
        global_batch: samples of a step; default: 32 768 tokens for each device, at most 4 million.
        memory_limit: of a device, bytes or text as "70 GiB"; default: 94 % of what it has.
        sequence: tokens of a sample, instead of the model's; a model file has its own.
        strategies: those that are allowed, of STRATEGIES; default: all.
        pins: what is decided already, as {"tensor": 8, "zero": 1, "recompute": "full"}.
        params: a calibration: the path of a file that `corro plan fit` wrote, or a mapping with its
            fields; default: fitted to published runs.
        profile: measured times of the layers on one of the cluster's device types: the path of a
            profile file or a mapping with its fields; default: computed from the device's figures.
        policies: objects with any of the methods cut(CutQuestion), schedule(ScheduleQuestion) and
            placement(PlacementQuestion). What they answer is costed beside the planner's own.

    Raises:
        InvalidArgumentError: an argument or a file is wrong, or they contradict each other.
        NotFoundError: no model has that name.
        ResourceExhaustedError: nothing fits: by how much, where, and what would.

    Warns:
        UserWarning: what of a config.json was guessed, and which of its fields are not counted.
    """
    options = {
        "samples": samples,
        "bytes_per_sample": bytes_per_sample,
        "objective": objective,
        "trainer": trainer,
        "global_batch": global_batch,
        "memory_limit": memory_limit,
        "sequence": sequence,
        "pins": pins_of(strategies, pins),
        "params": _document_of("params", params),
        "profile": _document_of("profile", profile),
    }
    given = {name: value for name, value in options.items() if value is not None}
    try:
        text = json.dumps(given, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"plan: {error}") from None
    listed = [each for policy in policies for each in _functions_of(policy)]
    document, table, terms, remarks = _planner.plan(
        *model_of(model), *cluster_of(cluster), text, listed
    )
    for remark in remarks:
        warnings.warn(f"plan: {remark}", stacklevel=2)
    return planned_of(json.loads(document), table, terms)


def _document_of(argument: str, given: object) -> object:
    """Returns the fields of a mapping or of a file of JSON."""
    if isinstance(given, (str, os.PathLike)):
        with open(given, encoding="utf-8") as file:
            try:
                return json.load(file)
            except ValueError as error:
                raise InvalidArgumentError(f"{os.fspath(given)}: {error}") from None
    if given is None or isinstance(given, Mapping):
        return given
    raise InvalidArgumentError(
        f"plan: {argument}: must be a path or a mapping, not a {type(given).__name__}"
    )


def _functions_of(
    policy: object,
) -> list[tuple[str, str, Callable[[dict[str, Any]], list[int]]]]:
    """Returns (kind, name, function) for each kind of question that a policy answers."""
    found = [
        (kind, type(policy).__name__, _asking(getattr(policy, kind), question))
        for kind, question in QUESTIONS.items()
        if callable(getattr(policy, kind, None))
    ]
    if not found:
        raise InvalidArgumentError(
            f"plan: policies: a {type(policy).__name__} has none of the methods "
            f"{', '.join(QUESTIONS)}"
        )
    return found


def _asking(
    answer: Callable[[Any], Iterable[int]], question: type[Any]
) -> Callable[[dict[str, Any]], list[int]]:
    def ask(fields: dict[str, Any]) -> list[int]:
        shape = Shape(**fields.pop("shape"))
        values = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
        return list(answer(question(shape=shape, **values)))

    return ask


def pins_of(
    strategies: Iterable[str] | None, pins: Mapping[str, object] | None
) -> dict[str, object]:
    """Returns the pins: the user's own, and one for each strategy that is not allowed.

    Raises:
        InvalidArgumentError: a strategy has no such name, or a pin needs one that is not allowed.
    """
    result = dict(pins or {})
    if strategies is None:
        return result
    allowed = set(strategies)
    for name in sorted(allowed - STRATEGIES.keys()):
        raise InvalidArgumentError(
            f"plan: strategies: {name!r} is none; there are {', '.join(STRATEGIES)}"
        )
    for name, (pin, neutral) in STRATEGIES.items():
        if name in allowed:
            continue
        if result.setdefault(pin, neutral) != neutral:
            raise InvalidArgumentError(
                f"plan: pins: {pin} is {result[pin]}, but strategies do not allow {name}"
            )
    return result


def model_of(model: object) -> tuple[str, str]:
    """Returns the text of a model file and its name; for a known model's name, no text.

    Raises:
        InvalidArgumentError: it is none of what plan() takes.
        OSError: the file cannot be read.
    """
    if isinstance(model, ModelDescription):
        return model.to_json(), model.name
    if isinstance(model, (str, os.PathLike)):
        return _text_or_name(model)
    if isinstance(model, Sequence) and len(model) in (2, 3):
        module, inputs, *loss = model
        description = _record(module, inputs, loss[0] if loss else None)
        return description.to_json(), description.name
    raise InvalidArgumentError(
        "plan: model: must be the path or the name of a model, a ModelDescription, or a module "
        f"with its inputs, (module, inputs) or (module, inputs, loss); not a {type(model).__name__}"
    )


def _text_or_name(model: str | os.PathLike[str]) -> tuple[str, str]:
    path = os.fspath(model)
    if isinstance(model, str) and not os.path.exists(path) and not os.path.splitext(path)[1]:
        return "", path
    with open(path, encoding="utf-8") as file:
        return file.read(), path


def _record(module: Any, inputs: Any, loss: Callable[[Any], Any] | None) -> ModelDescription:
    """Recording needs torch; planning does not."""
    record = import_module("corro.torch").record
    keywords = inputs if isinstance(inputs, Mapping) else None
    positional = inputs if isinstance(inputs, tuple) else () if keywords is not None else (inputs,)
    description: ModelDescription = record(module, *positional, keywords=keywords, loss=loss)
    return description


def cluster_of(cluster: object) -> tuple[str, str]:
    """Returns a cluster file's text, JSON being YAML, and its name; for a path, no text.

    Raises:
        InvalidArgumentError: it is neither a path nor a mapping.
    """
    if isinstance(cluster, Mapping):
        try:
            return json.dumps(cluster), "cluster"
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"plan: cluster: {error}") from None
    if isinstance(cluster, (str, os.PathLike)):
        return "", os.fspath(cluster)
    raise InvalidArgumentError(
        f"plan: cluster: must be a path or a mapping, not a {type(cluster).__name__}"
    )
