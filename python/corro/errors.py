"""What corro raises: one class per status code, each also deriving from the built-in that fits.

try:
    corro.numpy.allreduce(x)
except corro.RankLostError as error:
    print(f"rank {error.rank} was lost in {error.op} ({error.phase})")
"""

from __future__ import annotations

import builtins


class CorroError(Exception):
    """The base of every error of the engine.

    Attributes:
        code: gRPC's canonical code.
        rank: the world rank of the culprit, or -1.
        op: the operation ("allreduce", ...), or "".
        phase: what the operation was doing, or "".
        torn: whether the output buffer may hold partial results.
    """

    __module__ = "corro"  # Tracebacks say the public name.
    code = 2

    def __init_subclass__(cls) -> None:
        cls.__module__ = "corro"

    def __init__(
        self,
        message: str = "",
        *,
        rank: int = -1,
        op: str = "",
        phase: str = "",
        torn: bool = False,
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.op = op
        self.phase = phase
        self.torn = torn


class CancelledError(CorroError, RuntimeError):
    """The operation was given up: its group failed, or the engine was shut down."""

    code = 1


class UnknownError(CorroError, RuntimeError):
    """An error that has no code of its own."""

    code = 2


class InvalidArgumentError(CorroError, ValueError):
    """An argument that could never work."""

    code = 3


class MismatchError(InvalidArgumentError):
    """Ranks called with different shapes, dtypes, operations or roots; the group stays usable."""


class TimeoutError(CorroError, builtins.TimeoutError):
    """A deadline was over; `rank`, if not -1, is who was waited for."""

    code = 4


class NotFoundError(CorroError, LookupError):
    """Something named does not exist."""

    code = 5


class AlreadyExistsError(CorroError, ValueError):
    """A name is in use already."""

    code = 6


class PermissionDeniedError(CorroError, PermissionError):
    """The operating system or a peer refused."""

    code = 7


class ResourceExhaustedError(CorroError, MemoryError):
    """Out of memory, descriptors or another limit."""

    code = 8


class FailedPreconditionError(CorroError, RuntimeError):
    """Called at the wrong time: before init, after shutdown, or in a forked child."""

    code = 9


class AbortedError(CorroError, RuntimeError):
    """The operation was aborted by a peer, or ended by a new membership epoch."""

    code = 10


class OutOfRangeError(CorroError, IndexError):
    """A rank or an index outside of its range."""

    code = 11


class UnimplementedError(CorroError, NotImplementedError):
    """Not built, or not for these arguments."""

    code = 12


class InternalError(CorroError, RuntimeError):
    """A broken invariant of corro itself; please report it."""

    code = 13


class UnavailableError(CorroError, ConnectionError):
    """The other ranks cannot be reached."""

    code = 14


class RankLostError(UnavailableError):
    """A rank died or its connection ended: `rank`, in operation `op`, which was in `phase`."""


class RankFailedError(AbortedError):
    """A rank of corro.run() was killed, or has ended without a result: `rank`."""


class DataLossError(CorroError, OSError):
    """Data was lost or damaged beyond repair."""

    code = 15


class UnauthenticatedError(CorroError, PermissionError):
    """A peer does not have this job's secret."""

    code = 16


_BY_CODE: dict[int, type[CorroError]] = {
    cls.code: cls
    for cls in (
        CancelledError,
        UnknownError,
        InvalidArgumentError,
        TimeoutError,
        NotFoundError,
        AlreadyExistsError,
        PermissionDeniedError,
        ResourceExhaustedError,
        FailedPreconditionError,
        AbortedError,
        OutOfRangeError,
        UnimplementedError,
        InternalError,
        UnavailableError,
        DataLossError,
        UnauthenticatedError,
    )
}


def make(code: int, message: str, rank: int, op: str, phase: str, torn: bool) -> CorroError:
    """Returns the exception for an error of the native engine."""
    cls = _BY_CODE.get(code, UnknownError)
    if cls is InvalidArgumentError and op:  # Found while the operation ran: wrong only together.
        cls = MismatchError
    if cls is UnavailableError and rank >= 0:
        cls = RankLostError
    return cls(message, rank=rank, op=op, phase=phase, torn=torn)
