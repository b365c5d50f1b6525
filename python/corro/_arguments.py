"""Checks of what users pass on to the engine: the error names the argument, its range and the
value, where the binding would say that no signature fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from operator import index

from corro.errors import InvalidArgumentError

MOST_U32 = 2**32 - 1
MOST_U64 = 2**64 - 1
_MOST_ELEMENTS = 1 << 40  # The engine's limit.


def whole(what: str, value: object, least: int, most: int) -> int:
    """Returns a whole number from least to most."""
    number = None
    if not isinstance(value, bool):
        with suppress(TypeError):
            number = index(value)  # type: ignore[arg-type]
    if number is None or not least <= number <= most:
        raise InvalidArgumentError(
            f"{what} has to be a whole number from {least} to {most}, not {value!r}"
        )
    return number


def size(what: str, value: object) -> int:
    """Returns a number of bytes: whole, or as text with a unit, such as "4GiB" or "1.5 MiB"."""
    if not isinstance(value, str):
        return whole(what, value, 0, MOST_U64)
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT])iB", value.strip())
    if found is None:
        raise InvalidArgumentError(
            f'{what} has to be a number of bytes, or text such as "4GiB" or "512 MiB", not'
            f" {value!r}"
        )
    return whole(what, round(float(found[1]) * 1024 ** ("KMGT".index(found[2]) + 1)), 0, MOST_U64)


def number(what: str, value: object) -> float:
    """Returns a number, also one of numpy's or a tensor's."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InvalidArgumentError(f"{what} has to be a number, not {value!r}") from None


def seconds(what: str, value: object) -> float | None:
    """Returns a time that is not negative; None if there is none."""
    if value is None:
        return None
    time = number(what, value)
    if not time >= 0:
        raise InvalidArgumentError(f"{what} has to be a number of seconds >= 0, not {value!r}")
    return time


def name(what: str, value: object) -> str | None:
    """Returns a printable name; None if there is none."""
    if value is not None and not isinstance(value, str):
        raise InvalidArgumentError(f"{what} has to be a string, not {value!r}")
    if value is not None and not value.isprintable():
        raise InvalidArgumentError(f"{what} has to be printable, not {value!r}")
    return value


def shape(value: object) -> tuple[int, ...]:
    """Returns the dims of an array; one number is the only dim."""
    dims = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    return tuple(whole("a dim of shape", dim, 0, _MOST_ELEMENTS) for dim in dims)
