"""Horovod's exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from corro.errors import (
    AlreadyExistsError,
    CancelledError,
    CorroError,
    InvalidArgumentError,
    MismatchError,
    UnavailableError,
)


class HorovodInternalError(RuntimeError):
    """A collective failed: ranks called differently, or a rank was lost."""


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818  # Its name is Horovod's.
    """Hosts have come or gone in an elastic job; with `skip_sync` no state has to be sent."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Never raised: nothing here is compiled against a framework."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(
            f"horovod was built for {name} {version}, but {installed_version} is installed"
        )
        self.name = name
        self.version = version
        self.installed_version = installed_version


def raise_as_horovods(error: CorroError) -> NoReturn:
    """Raises corro's error as Horovod's; what is wrong on this rank alone stays a ValueError.

    Its text has all that corro's says, whose traceback would be one more. `__context__` has it.
    """
    if isinstance(error, InvalidArgumentError | AlreadyExistsError) and not isinstance(
        error, MismatchError
    ):
        raise error
    text = str(error)
    if isinstance(error, MismatchError):
        text = _begins_with_difference(text)
    elif isinstance(error, CancelledError | UnavailableError):
        text = f"Horovod has been shut down. {text}"
    raise HorovodInternalError(text) from None


@contextmanager
def raised_as_horovods() -> Iterator[None]:
    """raise_as_horovods() for what is raised within."""
    try:
        yield
    except CorroError as error:
        raise_as_horovods(error)


def _begins_with_difference(text: str) -> str:
    """Returns the text with the operation in which ranks differ behind what they differ in."""
    where, begin, what = text.partition("Mismatched ")
    return f"{begin}{what} ({where.removesuffix(': ')})" if where and begin else text
