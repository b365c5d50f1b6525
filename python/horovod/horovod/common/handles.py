"""Numbers for operations that were started: what Horovod's users wait for."""

from __future__ import annotations

from itertools import count
from typing import Any, Protocol

from corro.errors import CorroError
from horovod.common.exceptions import raise_as_horovods


class Started(Protocol):
    """What a handle stands for."""

    def done(self) -> bool: ...
    def wait(self) -> Any: ...


handles: dict[int, Started] = {}  # By handle.
numbers = count()


def handle_of(started: Started) -> int:
    """Returns a handle for what was started."""
    number = next(numbers)
    handles[number] = started
    return number


def poll(handle: int) -> bool:
    """Returns whether synchronize(handle), once, would return at once."""
    started = handles.get(handle)
    if started is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    return started.done()


def synchronize(handle: int) -> Any:
    """Waits for what was started and returns its result; None for a handle that is not known."""
    started = handles.pop(handle, None)
    if started is None:
        return None
    try:
        return started.wait()
    except CorroError as error:
        raise_as_horovods(error)


def forget() -> None:
    """Forgets all handles: this process leaves the job."""
    handles.clear()
