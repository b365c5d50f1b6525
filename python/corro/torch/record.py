"""The command `python -m corro.torch.record`: writes the model file of a module.

    python -m corro.torch.record train:build -o model.json

`build()` returns (model, inputs) or (model, inputs, loss): inputs are a tensor, a tuple, or a dict
of keyword arguments. Build the model under `torch.device("meta")` and it takes no memory.
In Python the same is `corro.torch.record(model, *inputs, loss=loss)`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from corro.errors import InvalidArgumentError
from corro.model import ModelDescription
from corro.torch.recorder import record

__all__ = ["record"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 2 for wrong arguments or a model that fails."""
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m corro.torch.record",
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="what returns the model")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
    parser.add_argument("--name", help="of the model; default: its class's")
    parser.add_argument("--samples", type=int, help="in the inputs; default: their first dim")
    parser.add_argument("--sequence", type=int, help="tokens per sample; default: the second dim")
    options = parser.parse_args(argv)
    try:
        model, inputs, keywords, loss = _build(options.function)
        description = record(
            model,
            *inputs,
            keywords=keywords,
            loss=loss,
            name=options.name,
            samples=options.samples,
            sequence=options.sequence,
        )
        if options.output:
            description.save(options.output)
        else:
            sys.stdout.write(description.to_json())
    except (InvalidArgumentError, OSError) as error:
        print(f"corro: {error}", file=sys.stderr)
        return 2
    _tell(description, options.output)
    return 0


def _build(spec: str) -> tuple[Any, tuple[Any, ...], Mapping[str, Any] | None, Any]:
    """Returns the model, its inputs, its keyword arguments and its loss."""
    module_name, colon, function_name = spec.partition(":")
    if not colon or not module_name or not function_name:
        raise InvalidArgumentError(f"{spec}: must be MODULE:FUNCTION, as in train:build")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InvalidArgumentError(f"{module_name}: {_one_line(error)}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InvalidArgumentError(f"{module_name}: has no function {function_name}")
    try:
        built = function()
    except Exception as error:
        raise InvalidArgumentError(f"{spec}: {_one_line(error)}") from error
    if not isinstance(built, tuple) or len(built) not in (2, 3):
        raise InvalidArgumentError(f"{spec}: must return (model, inputs) or (model, inputs, loss)")
    model, inputs, *loss = built
    keywords = inputs if isinstance(inputs, Mapping) else None
    positional = inputs if isinstance(inputs, tuple) else () if keywords is not None else (inputs,)
    return model, positional, keywords, loss[0] if loss else None


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")


def _tell(description: ModelDescription, path: str | None) -> None:
    layers = sum(run.count for run in description.layers)
    print(
        f"corro: {path or description.name}: {layers} layers of {len(description.types)} types, "
        f"{description.parameters:,} parameters, {description.forward_flops:.4g} FLOP a sample",
        file=sys.stderr,
    )
    for note in description.recorded.notes if description.recorded else ():
        print(f"corro: {note}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
