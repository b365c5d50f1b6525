"""Reads click logs in Criteo's format: batches of arrays, each of which one rank gets.

    from corro import criteo

    for batch in criteo.read(["day_0.gz", "day_1.gz"], 2048):
        loss = ...  # batch.labels [B], batch.dense [B, 13], batch.ids [B, 26]

A line has 40 fields between tabs: the label, 0 or 1, 13 integers, and 26 categories of up to eight
hexadecimal digits. All but the label may be missing, which is an empty field.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from corro import _context
from corro.errors import DataLossError, InvalidArgumentError

INTEGERS, CATEGORIES = 13, 26
FIELDS = 1 + INTEGERS + CATEGORIES
DIGITS = 8  # Of a category.
INTEGER = rb"(?:-?\d{1,18})?"
CATEGORY = rb"[0-9a-fA-F]{0,%d}" % DIGITS
LINE = re.compile(rb"[01](?:\t%b){%d}(?:\t%b){%d}" % (INTEGER, INTEGERS, CATEGORY, CATEGORIES))
MISSING = 1 << (4 * DIGITS)  # No category has so large a number.


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Samples of one step of one rank.

    Attributes:
        labels: [B] f32, 0 or 1: was it clicked?
        dense: [B, 13] f32, log(1 + x) of the integers; 0 for those that are missing or negative.
        ids: [B, 26] i64, different ones for different (column, category), over all 64 bits; a
            missing category has an id of its column's own.
    """

    labels: NDArray[numpy.float32]
    dense: NDArray[numpy.float32]
    ids: NDArray[numpy.int64]


class _Line(NamedTuple):
    path: str
    number: int  # From 1.
    text: bytes


def read(
    paths: Sequence[str | os.PathLike[str]],
    batch_size: int,
    *,
    rank: int | None = None,
    ranks: int | None = None,
    drop_last: bool = True,
) -> Iterator[Batch]:
    """Yields this rank's batches: batch i of the files is that of rank i % ranks.

    Every rank reads all files, one after the other, and parses its own lines alone.

    Args:
        paths: the files; a name that ends with .gz is of a compressed one.
        batch_size: lines of a batch.
        rank: whose batches; this rank's if not given, or 0 before corro.init().
        ranks: among how many; the job's if not given, or 1 before corro.init().
        drop_last: whether lines are left out at the end, so that all ranks have equally many
            batches, all of them full; else some ranks have one more, and the last is smaller.

    Raises:
        InvalidArgumentError: a line that is not of this format, with its file and number; or an
            argument.
        DataLossError: a compressed file that is damaged, with the number of its last line.
        OSError: a file that cannot be read.
    """
    if rank is None or ranks is None:
        inside = _context.is_initialized()
        rank = (_context.rank() if inside else 0) if rank is None else rank
        ranks = (_context.size() if inside else 1) if ranks is None else ranks
    if batch_size < 1 or not 0 <= rank < ranks:
        raise InvalidArgumentError(f"criteo.read: {batch_size=} for rank {rank} of {ranks}")
    return _batches(_lines(paths), batch_size, rank, ranks, drop_last)


def _batches(
    lines: Iterable[_Line], batch_size: int, rank: int, ranks: int, drop_last: bool
) -> Iterator[Batch]:
    """Waits with a batch until the other ranks have theirs, if the last ones are to be dropped."""
    own: list[_Line] = []
    count, whole = 0, batch_size * ranks
    for line in lines:
        if count // batch_size == rank:
            own.append(line)
        count += 1
        if count == whole:
            yield _parsed(own)
            own, count = [], 0
    if own and not drop_last:
        yield _parsed(own)


def _lines(paths: Sequence[str | os.PathLike[str]]) -> Iterator[_Line]:
    for path in (os.fspath(each) for each in paths):
        number = 0
        opened = gzip.open if path.endswith(".gz") else open
        with opened(path, "rb") as file:
            try:
                for number, text in enumerate(file, start=1):
                    yield _Line(path, number, text.rstrip(b"\r\n"))
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DataLossError(f"{path}: is damaged after line {number}: {error}") from error


def _parsed(lines: Sequence[_Line]) -> Batch:
    labels = numpy.empty(len(lines), numpy.float32)
    integers = numpy.empty((len(lines), INTEGERS), numpy.float32)
    categories = numpy.empty((len(lines), CATEGORIES), numpy.uint64)
    for at, line in enumerate(lines):
        if not LINE.fullmatch(line.text):
            raise _wrong(line)
        label, *fields = line.text.split(b"\t")
        labels[at] = label == b"1"
        integers[at] = [int(text) if text else 0 for text in fields[:INTEGERS]]
        categories[at] = [int(text, 16) if text else MISSING for text in fields[INTEGERS:]]
    dense = numpy.log1p(numpy.maximum(integers, 0))
    return Batch(labels=labels, dense=dense, ids=_ids(categories))


def _wrong(line: _Line) -> InvalidArgumentError:
    """Returns what is wrong with a line that is not of the format."""
    label, *fields = line.text.split(b"\t")
    if 1 + len(fields) != FIELDS:
        what = f"has {1 + len(fields)} fields, not {FIELDS}"
    elif label not in (b"0", b"1"):
        what = f"the label is {label!r}, not 0 or 1"
    else:
        forms = [INTEGER] * INTEGERS + [CATEGORY] * CATEGORIES
        pairs = enumerate(zip(forms, fields, strict=True))
        at = next(at for at, (form, text) in pairs if not re.fullmatch(form, text))
        if at < INTEGERS:
            what = f"integer {at + 1} is {fields[at]!r}"
        else:
            column = at - INTEGERS + 1
            what = f"category {column} is {fields[at]!r}, not up to {DIGITS} hex digits"
    return InvalidArgumentError(f"{line.path}:{line.number}: {what}")


def _ids(categories: NDArray[numpy.uint64]) -> NDArray[numpy.int64]:
    """Mixes [B, 26] numbers of categories and their columns to ids of all 64 bits.

    Each step can be undone, so different categories have different ids. They are those of
    SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014, fig.
    16), of a number that has the column above the category.
    """
    columns = numpy.arange(1, 1 + CATEGORIES, dtype=numpy.uint64)
    mixed = categories + (columns << numpy.uint64(4 * DIGITS + 1))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> numpy.uint64(shift))) * numpy.uint64(factor)
    ids: NDArray[numpy.int64] = (mixed ^ (mixed >> numpy.uint64(31))).view(numpy.int64)
    return ids
