"""Models as the planner sees them: layers in a chain with operators inside, as data and as a file.

    model = corro.torch.record(module, x)
    model.save("model.json")

Amounts are per sample and in elements of the model's dtype. docs/planner-inputs.md describes the
file; cpp/src/plan/model/model.h says what each field means, in the same words.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from typing import Any

VERSION = 1
LAYER_INPUT = -1
"""In Operator.inputs: what comes from the layer before. In the file: "input"."""

KINDS = (
    *("matmul", "attention", "elementwise", "norm"),
    *("embedding", "loss", "experts", "opaque"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """What a layer computes between two places where a tensor may change its layout."""

    name: str
    kind: str = "opaque"
    inputs: tuple[int, ...] = ()
    """Numbers of operators of the layer before this one, or LAYER_INPUT."""
    flops: float = 0
    """Forward, of matrix units: a multiplication and an addition are 2."""
    traffic: float = 0
    """Forward, elements that pass device memory."""
    output: float = 0
    saved: float = 0
    """Elements kept for backward; what two operators keep counts at one."""
    parameters: int = 0
    most_ways: int = 1
    """It can be cut so many ways at most (heads, features); 1: not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerType:
    """Operators, each after its inputs; the last one's output is the layer's."""

    name: str
    operators: tuple[Operator, ...]
    experts: int = 0
    experts_moved: float = 0
    keys_and_values: float = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRun:
    """`count` layers of one type, one after the other."""

    type: int
    count: int = 1
    name: str = ""
    """Path of the module in the user's model; "h.{}" of several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """What a recording saw and the file does not hold; of all samples together."""

    samples: int = 1
    saved_bytes: int = 0
    """Kept from forward to backward, each storage once, without parameters."""
    forward_flops: float = 0
    backward_flops: float = 0
    notes: tuple[str, ...] = ()
    """What was assumed or left opaque, a line each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelDescription:
    """A model from the samples to the loss; immutable."""

    name: str
    types: tuple[LayerType, ...]
    layers: tuple[LayerRun, ...]
    sequence: int = 0
    """Tokens per sample; 0: samples are no sequences."""
    tied_parameters: int = 0
    """Elements of the first layer's parameters that the last layer uses again."""
    dtype: str = "bf16"
    recorded: Recorded | None = field(default=None, compare=False)

    @property
    def parameters(self) -> int:
        """Elements; tied ones count once."""
        return int(sum(self._per_layer("parameters"))) - self.tied_parameters

    @property
    def forward_flops(self) -> float:
        """Of one sample."""
        return float(sum(self._per_layer("flops")))

    def _per_layer(self, amount: str) -> list[Any]:
        sums = [sum(getattr(item, amount) for item in kind.operators) for kind in self.types]
        return [sums[run.type] * run.count for run in self.layers]

    def to_dict(self) -> dict[str, Any]:
        """Returns what `json` can write. Fields that hold their default are left out."""
        return {
            "corro_model": VERSION,
            "name": self.name,
            "dtype": self.dtype,
            "sequence": self.sequence,
            "tied_parameters": self.tied_parameters,
            "types": [_type_to_dict(kind) for kind in self.types],
            "layers": [{**_to_dict(run), "type": self.types[run.type].name} for run in self.layers],
        }

    def to_json(self) -> str:
        """Returns the file's text: a line for each operator and each run of layers."""
        return _text(self.to_dict(), "") + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model file.

        Raises:
            OSError: it cannot be written.
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_json())


def _type_to_dict(kind: LayerType) -> dict[str, Any]:
    """Operators refer to each other by name."""
    names = [*(operator.name for operator in kind.operators), "input"]  # -1 is the last.
    operators = []
    for operator in kind.operators:
        inputs = [names[number] for number in operator.inputs]
        always = {"name": operator.name, "kind": operator.kind, "inputs": inputs}
        operators.append({**always, **_to_dict(operator), "inputs": inputs})
    return {**_to_dict(kind), "operators": operators}


def _to_dict(item: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in dataclasses.fields(item):
        value = getattr(item, each.name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if each.default is dataclasses.MISSING or value != each.default:
            values[each.name] = value
    return values


def _text(value: Any, indent: str) -> str:
    """Objects that hold lists of objects are spread over lines, all others take one line."""
    deeper = indent + "  "
    if isinstance(value, list) and value and isinstance(value[0], dict):
        lines = [deeper + _text(item, deeper) for item in value]
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    nested = isinstance(value, dict) and any(
        isinstance(item, list) and item and isinstance(item[0], dict) for item in value.values()
    )
    if nested:
        lines = [f"{deeper}{json.dumps(key)}: {_text(value[key], deeper)}" for key in value]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return json.dumps(value, ensure_ascii=False)
