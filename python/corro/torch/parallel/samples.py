"""Batches: pytrees whose tensors have a sample in each row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from corro.errors import InvalidArgumentError


def plain(batch: Any) -> Any:
    """Returns the batch; a mapping of another kind, as tokenizers return, as a dict."""
    if isinstance(batch, Mapping) and not isinstance(batch, dict):
        return dict(batch)
    return batch


def count_of(batch: Any, what: str) -> int:
    """Returns how many samples a batch has: the length of its tensors' first dim.

    Raises:
        InvalidArgumentError: it has no tensor with a first dim; begins with `what`.
    """
    for leaf in tree_flatten(batch)[0]:
        if isinstance(leaf, Tensor) and leaf.dim():
            return int(leaf.shape[0])
    raise InvalidArgumentError(f"{what}: has no tensor whose first dim is that of the samples")


def form_of(batch: Any) -> str:
    """Returns what batches of one form have alike: structure, dtypes, shapes; not values."""
    leaves, structure = tree_flatten(batch)
    kinds = [
        f"{str(each.dtype).removeprefix('torch.')} {list(each.shape)}"
        if isinstance(each, Tensor)
        else type(each).__name__
        for each in leaves
    ]
    keys = sorted(batch) if isinstance(batch, Mapping) else type(batch).__name__
    return f"{keys} of {', '.join(kinds)}" if structure.num_leaves > 1 else kinds[0]


def digest_of(batch: Any) -> int:
    """Returns a number of 48 bits by which two ranks compare a batch."""
    found = hashlib.blake2b(digest_size=6)
    for leaf in tree_flatten(batch)[0]:
        if isinstance(leaf, Tensor):
            found.update(f"{leaf.dtype}{tuple(leaf.shape)}".encode())
            found.update(leaf.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(leaf, bool | int | float | str):
            found.update(repr(leaf).encode())
    return int.from_bytes(found.digest(), "little")


def rows(batch: Any, samples: range, count: int) -> Any:
    """Returns some samples of a batch of `count`; what has another first dim stays whole."""

    def part(leaf: Any) -> Any:
        shape: Sequence[int] = getattr(leaf, "shape", ())
        if len(shape) and shape[0] == count:
            return leaf[samples.start : samples.stop]
        return leaf

    return tree_map(part, batch)


def share(count: int, parts: int, number: int) -> range:
    """Returns the samples of one of `parts` shares that differ by one sample at most."""
    return range(count * number // parts, count * (number + 1) // parts)
