"""What services got and gave: digests of firings, tensors of chosen steps, and their replay."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from corro.errors import InvalidArgumentError, NotFoundError

MOST_KEPT = 10_000
"""Firings that a rank's log holds: the last ones."""


@dataclass(frozen=True)
class Fired:
    """One firing on this rank. Digests are 16 hexadecimal digits of contents, dtype and shape."""

    step: int
    service: str
    got: tuple[str, ...]
    gave: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Replayed:
    """What a service gave when it ran again on what it had got."""

    results: tuple[Tensor, ...]
    recorded: tuple[Tensor, ...]

    @property
    def difference(self) -> float:
        """Returns the largest difference of two elements; 0.0 where all bits are equal."""
        pairs = list(zip(self.results, self.recorded, strict=True))
        if any(one.shape != other.shape for one, other in pairs):
            return float("inf")
        if all(torch.equal(one, other) for one, other in pairs):
            return 0.0
        return max(float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel())


def digest(tensor: Tensor) -> str:
    """Returns 64 bits of a hash (BLAKE2b) of a tensor's dtype, shape and bytes."""
    plain = tensor.detach().cpu().contiguous()
    found = hashlib.blake2b(f"{plain.dtype}{tuple(plain.shape)}".encode(), digest_size=8)
    size = plain.numel() * plain.element_size()
    if size:
        found.update((ctypes.c_char * size).from_address(plain.data_ptr()))
    return found.hexdigest()


class Recorder:
    """Writes what chosen steps got and gave into a folder, a file for each service and step."""

    def __init__(self, folder: str | os.PathLike[str], steps: Container[int]) -> None:
        self._folder = Path(folder)
        self._steps = steps
        self._folder.mkdir(parents=True, exist_ok=True)

    def begin(self, step: int, function: Any, arguments: list[Any]) -> dict[str, Any] | None:
        """Returns what a file begins with; None if the step was not chosen."""
        if step not in self._steps:
            return None
        return {
            "arguments": _copied(arguments),
            "state": _copied(function.state_dict()) if isinstance(function, nn.Module) else None,
            "training": isinstance(function, nn.Module) and function.training,
            "random": torch.get_rng_state(),
        }

    def end(self, cell: str, step: int, begun: dict[str, Any], results: list[Tensor]) -> None:
        """Writes the file."""
        path = path_of(self._folder, cell, step)
        written = path.with_suffix(f".{os.getpid()}")
        torch.save({**begun, "results": _copied(results)}, written)
        written.replace(path)


def path_of(folder: str | os.PathLike[str], cell: str, step: int) -> Path:
    """Returns the file of a service and a step."""
    return Path(folder) / f"{quote(cell, safe='[] ')}-{step}.pt"


def replay(
    folder: str | os.PathLike[str],
    step: int,
    cell: str,
    function: Any,
    run: Callable[[list[Any]], list[Tensor]],
) -> Replayed:
    """Runs a function again on what it had got; its module's state is afterwards as before.

    Raises:
        NotFoundError: nothing was recorded of it in this step.
        InvalidArgumentError: the recorded state is of another module.
    """
    path = path_of(folder, cell, step)
    if not path.exists():
        raise NotFoundError(f'graph.replay: {path}: no record of service "{cell}", step {step}')
    record = torch.load(path, weights_only=True)
    module = function if isinstance(function, nn.Module) else None
    before = None if module is None else (_copied(module.state_dict()), module.training)
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(record["random"])
        try:
            if module is not None:
                _load(module, record["state"], record["training"], cell)
            results = run(record["arguments"])
        finally:
            if module is not None and before is not None:
                _load(module, *before, cell)
    return Replayed(
        tuple(each.detach().cpu() for each in results),
        tuple(record["results"]),
    )


def _load(module: nn.Module, state: dict[str, Any], training: bool, cell: str) -> None:
    try:
        module.load_state_dict(state)
    except (RuntimeError, TypeError) as error:
        raise InvalidArgumentError(
            f'graph.replay: service "{cell}": {" ".join(str(error).split())}'
        ) from error
    module.train(training)


def _copied(values: Any) -> Any:
    return tree_map(
        lambda each: each.detach().cpu().clone() if isinstance(each, Tensor) else each, values
    )
