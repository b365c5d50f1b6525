"""What a rank of corro.run() executes: the caller's function, as `python -m corro._call`.

CORRO_CALL names two descriptors: a file with the call, which all ranks of the host share, and a
pipe for what this rank returns. Both sides are written here, in the order in which they talk.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import sys
import traceback
from typing import Any, NoReturn

RESULT, FAILURE = b"r", b"f"
HEADER = struct.Struct("<cQ")  # One of these, and the bytes that follow.


def pack_call(func: Any, args: Any, kwargs: Any) -> bytes:
    """Returns what read_call() reads; raises what pickle raises."""
    import cloudpickle

    # The path first: what follows may need it.
    return pickle.dumps(sys.path) + bytes(cloudpickle.dumps((func, args, kwargs)))


def read_call(fd: int) -> tuple[Any, Any, Any]:
    """Returns function, arguments and keyword arguments, with modules found as the caller does."""
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as file:
        sys.path[:] = pickle.load(file)
        func, args, kwargs = pickle.load(file)
    return func, args, kwargs


def pack_failure(error: BaseException) -> bytes:
    """Returns the exception, if it can be sent and made again, and its traceback as text."""
    import cloudpickle

    text = "".join(traceback.format_exception(error))
    try:
        packed = cloudpickle.dumps(error)
        pickle.loads(packed)
    except Exception:
        packed = b""
    return pickle.dumps((packed, text))


def send(fd: int, kind: bytes, body: bytes) -> None:
    """Writes all of it; the launcher reads as fast as the caller does."""
    for part in (HEADER.pack(kind, len(body)), body):
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(fd, rest) :]


def pack_result(result: Any) -> bytes:
    """Returns it as bytes; what cannot be sent is a TypeError that says so."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(result))
    except Exception as error:
        raise TypeError(
            f"corro.run: a {type(result).__name__} was returned, which cannot be sent: {error}"
        ) from error


def fail(fd: int, error: Exception) -> NoReturn:
    """Ends this rank as an uncaught exception would, and tells the caller."""
    # This module is none of the user's business.
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__ and trace.tb_next:
        trace = trace.tb_next
    error.__traceback__ = trace
    send(fd, FAILURE, pack_failure(error))
    sys.excepthook(type(error), error, trace)
    sys.exit(1)


def main() -> None:
    """Reads the call, carries it out, and sends what comes of it."""
    call, answer = map(int, os.environ.pop("CORRO_CALL").split(","))
    for fd in (call, answer):
        os.set_inheritable(fd, False)
    try:
        func, args, kwargs = read_call(call)
        body = pack_result(func(*args, **kwargs))
    except Exception as error:
        fail(answer, error)
    send(answer, RESULT, body)


if __name__ == "__main__":
    main()
