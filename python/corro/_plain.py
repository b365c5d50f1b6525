"""Trees of plain values as JSON text, and back, exactly. No pickle: reading one runs no code.

JSON has no tuples, no keys but texts, no infinity and no order of fields. Such values are objects
with a mark, a field whose name begins with "$":

    (1, 2)                 {"$tuple": [1, 2]}
    {3: "x"}               {"$dict": [[3, "x"]], "$type": "dict"}
    float("inf")           {"$float": "inf"}
    2**80                  {"$int": "1208925819614629174706176"}

Tensors stand elsewhere. Their owner writes an object with a mark of its own for each.
"""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from corro.errors import InvalidArgumentError

Take = Callable[[str, Any], "dict[str, Any] | None"]
Give = Callable[[str, Mapping[str, Any]], Any]

_MAPPINGS: Mapping[str, type[dict[Any, Any]]] = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": Counter,
}


def to_text(tree: Any, take: Take) -> str:
    """Returns the tree as JSON.

    Args:
        tree: None, numbers, texts, lists, tuples and dicts of such; what else there is goes to
            `take`.
        take: returns an object with a mark for a value, whose path it gets; None: it has none.

    Raises:
        InvalidArgumentError: a value is none of these; names its path.
    """
    return json.dumps(_packed(tree, "", take), allow_nan=False)


def from_text(text: str, give: Give) -> Any:
    """Returns the tree that to_text() has written.

    Args:
        text: what to_text() has returned.
        give: returns the value for an object that `take` has made, and for its path.
    """
    return _unpacked(json.loads(text), "", give)


def _packed(value: Any, path: str, take: Take) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 2**63 else {"$int": str(int(value))}
    if isinstance(value, float):  # numpy's float64 is one, too.
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if type(value) in (list, tuple):
        items = [_packed(item, inside(path, i), take) for i, item in enumerate(value)]
        return items if type(value) is list else {"$tuple": items}
    if type(value) in _MAPPINGS.values():
        return _packed_mapping(value, path, take)
    taken = take(path, value)
    if taken is None:
        raise InvalidArgumentError(
            f"checkpoint: {path} is a {type(value).__name__}, and cannot be written without pickle:"
            " use numbers, texts, lists, dicts, tensors, or an object with state_dict()"
        )
    return taken


def _packed_mapping(value: dict[Any, Any], path: str, take: Take) -> dict[str, Any]:
    packed = [(key, _packed(item, inside(path, key), take)) for key, item in value.items()]
    keys = list(value)
    is_plain = type(value) is dict and all(
        isinstance(key, str) and not key.startswith("$") for key in keys
    )
    if is_plain and keys == sorted(keys, key=lambda key: key.encode()):
        return dict(packed)
    rows = [[_packed(key, f"a key of {path}", take), item] for key, item in packed]
    return {"$dict": rows, "$type": type(value).__name__}


def _unpacked(value: Any, path: str, give: Give) -> Any:
    if isinstance(value, list):
        return [_unpacked(item, inside(path, i), give) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if not any(key.startswith("$") for key in value):
        return {key: _unpacked(item, inside(path, key), give) for key, item in value.items()}
    if "$tuple" in value:
        return tuple(_unpacked(value["$tuple"], path, give))
    if "$dict" in value:
        made = _MAPPINGS[value["$type"]]()
        for packed, item in value["$dict"]:
            key = _unpacked(packed, f"a key of {path}", give)
            made[key] = _unpacked(item, inside(path, key), give)
        return made
    if "$float" in value:
        return float(value["$float"])
    if "$int" in value:
        return int(value["$int"])
    return give(path, value)


def inside(path: str, key: object) -> str:
    """Returns the path of a part of the value at this path."""
    return f"{path}.{key}" if path else str(key)
