"""The order of samples in a data epoch."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from corro.elastic._permutation import Permutation


def test_an_order_has_each_sample_once() -> None:
    for size in range(2001):
        indices = Permutation(size, seed=size % 7, data_epoch=size % 5).indices(range(size))
        assert sorted(indices) == list(range(size))


@pytest.mark.parametrize("size", [65535, 65536, 65537, 1_000_003])
def test_a_large_order_has_each_sample_once(size: int) -> None:
    indices = Permutation(size, seed=1, data_epoch=2).indices(range(size))
    assert sorted(indices) == list(range(size))


def test_any_part_of_an_order_is_the_same_as_in_the_whole() -> None:
    order = Permutation(997, seed=4, data_epoch=9)
    whole = order.indices(range(997))
    for part in (range(0, 1), range(996, 997), range(13, 500), range(3, 990, 17), range(5, 5)):
        assert order.indices(part) == whole[part.start : part.stop : part.step]


def test_an_order_is_the_same_with_every_release() -> None:
    assert Permutation(10, 0, 0).indices(range(10)) == [9, 4, 2, 6, 7, 8, 5, 3, 1, 0]
    assert Permutation(10, 0, 1).indices(range(10)) == [0, 6, 5, 4, 9, 2, 3, 8, 1, 7]
    assert Permutation(1_000_003, 5, 2).indices(range(3)) == [166639, 142535, 160426]
    last = range((1 << 40) - 2, 1 << 40)
    assert Permutation(1 << 40, -1, 3).indices(last) == [455252722250, 144978165626]


def deviation(counts: Counter[Any], cells: int) -> float:
    """Returns chi square less what is expected, in standard deviations."""
    expected = sum(counts.values()) / cells
    squares = sum((count - expected) ** 2 for count in counts.values())
    missing = (cells - len(counts)) * expected**2
    return ((squares + missing) / expected - cells) / math.sqrt(2 * cells)


def test_an_order_looks_random() -> None:
    """Where a sample comes, what follows it, and what it does in the next data epoch."""
    size, cells = 1009, 16
    places: Counter[tuple[int, int]] = Counter()
    followers: Counter[tuple[int, int]] = Counter()
    epochs: Counter[tuple[int, int]] = Counter()
    before: list[int] = []
    for data_epoch in range(100):
        order = Permutation(size, 3, data_epoch).indices(range(size))
        cell = [index * cells // size for index in order]
        places.update((i * cells // size, c) for i, c in enumerate(cell))
        followers.update(pairwise(cell))
        epochs.update(zip(before, cell, strict=False))
        before = cell
    for counts in (places, followers, epochs):
        assert abs(deviation(counts, cells * cells)) < 4
