"""What every front end asks of dtypes and counts before the engine sees them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from corro import _native
from corro.errors import InvalidArgumentError


def movable(dtype: int | None, itemsize: int) -> tuple[int, int]:
    """Returns a dtype to move elements with, and how many of it make an element.

    Args:
        dtype: the engine's number; None if the engine can only move the bytes.
        itemsize: of an element, in bytes.
    """
    return (_native.U8, itemsize) if dtype is None else (dtype, 1)


def reducible(dtype: int | None, verb: str, name: object) -> int:
    """Returns the dtype; raises InvalidArgumentError, with its name, if the engine has it not."""
    if dtype is None:
        raise InvalidArgumentError(
            f"{verb}: no arithmetic for {name}; there is for bool, int8 to int64, uint8 to uint64, "
            "float16, bfloat16, float32 and float64"
        )
    return dtype


def splits(
    verb: str, given: Sequence[int] | None, size: int, count: int, what: str = "rows"
) -> list[int]:
    """Returns how many of count rows are for each rank: as given, else equally many."""
    if given is None:
        if count % size != 0:
            raise InvalidArgumentError(
                f"{verb}: {count} {what} do not divide by {size} ranks; give splits"
            )
        return [count // size] * size
    try:
        numbers = [index(n) for n in given]
    except TypeError:
        raise InvalidArgumentError(
            f"{verb}: splits have to be whole numbers, not {given!r}"
        ) from None
    if len(numbers) != size or min(numbers) < 0 or sum(numbers) != count:
        raise InvalidArgumentError(
            f"{verb}: splits {numbers} have to be {size} numbers with the sum {count}"
        )
    return numbers
