"""The batches of a training: the same on every rank, for every plan, and after a checkpoint.

A data epoch's order is a function of the seed and the epoch. Where samples are counted, its place
is how many of them were taken; where batches are given, how many batches were. What is drawn at
random while a batch is made, as to augment it, is a function of the seed, the epoch and the place.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from corro._context import Group, exchange
from corro._objects import allgather_object
from corro.errors import InvalidArgumentError
from corro.torch.parallel import masks, samples
from corro.torch.parallel.randomness import generators_kept

Collate = Callable[[list[Any]], Any]
_BATCH, _END, _FAILED = range(3)


class Batch(NamedTuple):
    """A batch, and where the next one begins."""

    content: Any
    size: int  # How many samples.
    place: int


class Batches(Protocol):
    """Data epochs of batches. Externally synchronized."""

    @property
    def total(self) -> int | None:
        """The place at which an epoch ends; None if nobody knows before."""

    @property
    def order(self) -> str:
        """What a place counts, and in which order: where these differ, a place means nothing."""

    def epoch(self, number: int, place: int = 0) -> Iterator[Batch]:
        """Yields what is left of an epoch from a place on."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """Batches of a data set whose samples have numbers."""

    dataset: Any
    batch_size: int
    collate: Collate
    seed: int
    shuffle: bool

    @property
    def total(self) -> int:
        return len(self.dataset)

    @property
    def order(self) -> str:
        return f"{self.total} samples" + (f" shuffled by seed {self.seed}" if self.shuffle else "")

    def epoch(self, number: int, place: int = 0) -> Iterator[Batch]:
        order: Any = range(self.total)
        if self.shuffle:
            # Not before it is needed: it needs numpy.
            permutation = import_module("corro.elastic._permutation").Permutation
            order = permutation(self.total, self.seed, number)
        while place < self.total:
            places = range(place, min(place + self.batch_size, self.total))
            with drawing_alike(self.seed, number, place):
                found = self._samples(order.indices(places) if self.shuffle else list(places))
                content = self.collate(found)
            place = places.stop
            yield Batch(content, len(places), place)

    def _samples(self, numbers: list[int]) -> list[Any]:
        if hasattr(self.dataset, "__getitems__"):  # As torch's DataLoader does.
            found: list[Any] = self.dataset.__getitems__(numbers)
            return found
        return [self.dataset[number] for number in numbers]


@dataclass(frozen=True, slots=True)
class Given:
    """Batches as something yields them, or its samples in groups."""

    source: Iterable[Any]
    batch_size: int | None  # None: it yields batches.
    collate: Collate
    seed: int

    @property
    def is_once(self) -> bool:
        """Whether there is one epoch only."""
        return iter(self.source) is self.source

    @property
    def total(self) -> int | None:
        if not isinstance(self.source, Sized):
            return None
        try:
            count = len(self.source)
        except TypeError:  # Of a DataLoader over what has no length.
            return None
        return count if self.batch_size is None else -(-count // self.batch_size)

    @property
    def order(self) -> str:
        size = "" if self.batch_size is None else f" of {self.batch_size}"
        return f"{self.total or 'some'} batches{size}, drawn with seed {self.seed}"

    def epoch(self, number: int, place: int = 0) -> Iterator[Batch]:
        with drawing_alike(self.seed, number, 0):
            items = iter(self.source)
        at = 0
        while True:
            with drawing_alike(self.seed, number, at):
                found = list(islice(items, self.batch_size or 1))
                if not found:
                    return
                content = samples.plain(
                    found[0] if self.batch_size is None else self.collate(found)
                )
            at += 1
            if at > place:
                yield Batch(content, samples.count_of(content, "fit: samples: a batch"), at)


def batches_of(
    source: Any, batch_size: int | None, collate: Collate | None, seed: int, shuffle: bool
) -> Batches:
    """Returns the batches of a data set, of a sequence of samples, or of an iterable.

    Raises:
        InvalidArgumentError: it is none of these, or empty, or the size does not fit it.
    """
    if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
        raise InvalidArgumentError(f"batch_size: {batch_size!r} is no positive integer")
    if isinstance(source, DataLoader) and batch_size is not None:
        raise InvalidArgumentError("batch_size: has to be None for a DataLoader, which has its own")
    if isinstance(source, Mapping | str | bytes):
        raise InvalidArgumentError(
            f"a {type(source).__name__} is no data set: give a torch Dataset, a sequence of"
            " samples, or an iterable"
        )
    collate = default_collate if collate is None else collate
    if batch_size is not None and _has_numbers(source):
        if not len(source):
            raise InvalidArgumentError("has no samples")
        return Indexed(source, batch_size, collate, seed, shuffle)
    if not isinstance(source, Iterable) and not _has_numbers(source):
        raise InvalidArgumentError(
            f"a {type(source).__name__} has neither numbers and a length nor can be iterated"
        )
    return Given(source, batch_size, collate, seed)


def _has_numbers(source: Any) -> bool:
    kind = type(source)
    has = hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    return has and not isinstance(source, IterableDataset)


@contextmanager
def drawing_alike(*place: int) -> Iterator[None]:
    """What torch, numpy and Python draw inside is a function of the place alone.

    Their generators are afterwards as they were.
    """
    number, numpy = masks.mix(*place), sys.modules.get("numpy")
    python = random.getstate()
    theirs = None if numpy is None else numpy.random.get_state()
    with generators_kept():
        torch.default_generator.manual_seed(number)
        random.seed(number)
        if numpy is not None:
            numpy.random.seed(number % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            if numpy is not None:
                numpy.random.set_state(theirs)


def agreed(batches: Iterator[Batch], what: str, group: Group) -> Iterator[Batch]:
    """Yields batches that come on all ranks; collective.

    Raises:
        InvalidArgumentError: on every rank: they end, fail or begin differently on one of them.
        Exception: on a rank where making a batch has failed: its own.
    """
    number, first = 0, True
    while True:
        found, failure, batch = _BATCH, None, None
        try:
            batch = next(batches, None)
            digest = samples.digest_of(batch.content) if batch is not None and first else 0
        except Exception as error:  # Data sets are the user's.
            found, failure, digest = _FAILED, error, 0
        if failure is None and batch is None:
            found, digest = _END, 0
        rows = exchange(group, [found, digest])
        if any(row[0] == _FAILED for row in rows):
            raise_failure(failure, what, group)
        _check_alike(rows, number, what, group)
        if batch is None:
            return
        yield batch
        number, first = number + 1, False


def raise_failure(failure: Exception | None, what: str, group: Group) -> None:
    """Raises a rank's own exception there, and one that tells of the first of them elsewhere.

    Collective; returns where no rank has failed.
    """
    text = failure and f"{type(failure).__name__}: {failure}"
    told = zip(group.ranks, allgather_object(text, group=group), strict=True)
    first = next((f"rank {rank}: {what}: {text}" for rank, text in told if text), None)
    if failure is not None:
        raise failure
    if first is not None:
        raise InvalidArgumentError(first)


def _check_alike(rows: list[list[int]], number: int, what: str, group: Group) -> None:
    found = [row[0] for row in rows]
    other = next((at for at, row in enumerate(rows) if row != rows[0]), None)
    if other is None:
        return
    rank = group.ranks[other]
    if _END in found:
        ended = group.ranks[found.index(_END)]
        raise InvalidArgumentError(
            f"{what}: end after {number} batches on rank {ended} alone; all ranks have to give the"
            " same"
        )
    raise InvalidArgumentError(
        f"{what}: the first batch of rank {rank} is not that of rank {group.ranks[0]}; all ranks"
        " have to give the same"
    )
