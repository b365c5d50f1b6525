"""Streams of ids that all peers of the rows of tables are asked for, and what their rows hold.

Functions of their arguments alone. An id is the number of a row, in [0, rows). Stores that find
rows by key get keys_of(ids), which lie anywhere in 2^64; an array of rows gets the ids.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]
Values = NDArray[np.float32]

BATCH = 16_384  # Ids of a call.
SMALL_BATCH = 1024
SEED = 1

# Categories of the 26 columns of the Criteo Kaggle data, as DLRM (Naumov et al. 2019) counts them.
# fmt: off
CRITEO = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)
# fmt: on
CRITEO_SKEW = 1.05  # Of the categories of each column.


def uniform(rows: int, count: int, seed: int = SEED) -> Ids:
    """`count` ids, each row as likely as any other."""
    return np.random.default_rng(seed).integers(0, rows, count, dtype=np.uint64)


def zipf(rows: int, count: int, skew: float, seed: int = SEED) -> Ids:
    """`count` ids; the k-th most frequent row has a likelihood of k^-skew by the sum of all. Which
    rows are frequent has nothing to do with their numbers."""
    random = np.random.default_rng(seed)
    ranks = _ranks(random, rows, count, skew)
    return random.permutation(rows).astype(np.uint64)[ranks]


def criteo(rows: int, samples: int, seed: int = SEED) -> Ids:
    """The ids of `samples` clicks, 26 for each, column after column as in the file. Columns have
    rows of their own, as many as they have categories there, all scaled down to `rows`."""
    random = np.random.default_rng(seed)
    columns = []
    first = 0
    for categories in scaled_columns(rows):
        ranks = _ranks(random, categories, samples, CRITEO_SKEW)
        columns.append(first + random.permutation(categories).astype(np.uint64)[ranks])
        first += categories
    return np.stack(columns, axis=1).reshape(-1)


def scaled_columns(rows: int) -> list[int]:
    """Categories of each column, at least one, and at most `rows` in all. `rows`: at least 26."""
    spare = rows - len(CRITEO)
    return [1 + min(spare * each // sum(CRITEO), each - 1) for each in CRITEO]


def keys_of(ids: Ids) -> Ids:
    """A key for each id, other ids other keys: the finalizer of SplitMix64."""
    keys = ids + np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def rows_of(ids: Ids, dim: int) -> Values:
    """What each row holds before anything is timed: [ids, dim], none of them 0."""
    places = np.arange(dim, dtype=np.uint64)
    return ((ids[:, None] * np.uint64(31) + places) % np.uint64(997) + 1).astype(np.float32) / 1024


def _ranks(random: np.random.Generator, rows: int, count: int, skew: float) -> NDArray[np.int64]:
    heights = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -skew)
    found = np.searchsorted(heights, random.random(count) * heights[-1], side="right")
    return np.minimum(found, rows - 1)
