"""corro.run(): a function on several ranks, called from a script or a notebook.

The ranks are those of a `corro run`, which this process starts and talks with over a socket:
docs/design/0015-run-from-python.md says why.
"""

from __future__ import annotations

import codecs
import json
import os
import pickle
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import IO, Any, TypeVar

from corro import _call, errors
from corro.errors import InvalidArgumentError, RankFailedError

T = TypeVar("T")

_FRAME = struct.Struct("<iI")  # A rank, or _END, and the bytes that follow.
_END = -1
_PIECE = 1 << 20
_RANK = (sys.executable, "-u", "-m", "corro._call")
_RANKS = 4
_PATIENCE = 10.0  # Seconds: the launcher needs less to end a job.


class RemoteTraceback(Exception):  # noqa: N818
    """The cause of an exception of a rank: the traceback there, as text."""

    __module__ = "corro"


def run(
    func: Callable[..., T],
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: int | None = None,
    hosts: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    options: Sequence[str] = (),
) -> list[T]:
    """Calls a function on several ranks, and returns their results by rank.

    Starts the ranks as `corro run` does, and blocks until all have ended; nothing of them remains,
    also after a Ctrl-C. Each has the function from here, whatever it is: a lambda, a closure, a
    notebook's. What it needs of corro it does itself, beginning with `corro.init()`. What ranks
    print appears as `corro run` shows it, on this process's sys.stdout and sys.stderr.

        def train(rate):
            corro.init()
            return corro.numpy.allreduce(rate * corro.rank())

        results = corro.run(train, args=(0.1,), np=4)

    Args:
        func: the function. It, its arguments and its results are sent by cloudpickle; modules are
            imported anew on each rank, along this process's sys.path.
        args: its arguments.
        kwargs: its keyword arguments.
        np: the number of ranks; None: as many as the hosts have slots, without hosts 4.
        hosts: where they run, as after `corro run -H`: "a:4,b:4", by ssh; None: on this host, which
            may also be missing in the list. Everywhere Python is at the same path as here.
        env: variables for the ranks, beside this process's own.
        timeout: seconds after which the job is stopped.
        options: further options of `corro run`, such as ("--show", "all").

    Raises:
        Exception: what the function has raised on the rank that failed first, with RemoteTraceback
            as its cause, which has the text of the traceback there, the rank and the host.
        RankFailedError: a rank was killed or has ended without a result, or its exception could
            not be sent; the text is what `corro run` shows of it.
        TimeoutError: `timeout` is over; the text says what each rank did.
        InvalidArgumentError, UnavailableError, ...: no rank was started, and why.
        TypeError: the function, an argument or a result cannot be sent.
    """
    if hosts is not None and not isinstance(hosts, str):
        raise TypeError(f"corro.run: hosts is text such as 'a:4,b:4', not {type(hosts).__name__}")
    if hosts == "":
        raise InvalidArgumentError("corro.run: no host; give some, as in 'a:4,b:4', or None")
    call = _call.pack_call(func, tuple(args), dict(kwargs or {}))
    command = [_program(), "run"]
    if np is None and hosts is None:
        np = _RANKS
    if np is not None:
        command += ["-np", str(index(np))]
    if hosts is not None:
        command += ["-H", hosts]
    if timeout is not None:
        command += ["--timeout", str(timeout)]
    job = _Job(call, [*command, *options], {**os.environ, **(env or {})})
    try:
        job.wait()
    finally:
        job.end()
    return job.results()


def _program() -> str:
    name = "corro"
    scripts = Path(sysconfig.get_path("scripts"), name)
    beside = Path(sys.executable).with_name(name)
    for path in (scripts, beside):
        if path.exists():
            return str(path)
    found = shutil.which(name)
    if found is None:
        raise errors.NotFoundError(f"corro.run: no program {scripts}; is corro installed?")
    return found


class _Text:
    """One of this process's streams: the launcher writes to it, or to us where it is not real."""

    def __init__(self, stream: IO[str] | None, own: int) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.target: int = subprocess.DEVNULL
        if stream is None:
            return
        with suppress(OSError, ValueError):
            stream.flush()
        with suppress(OSError, ValueError, AttributeError):
            if stream.fileno() == own:
                self.target = own
                return
        self.target = subprocess.PIPE

    def show(self, data: bytes) -> None:
        text = self._decoder.decode(data, final=not data)
        if text and self._stream is not None:
            self._stream.write(text)
            self._stream.flush()


class _Job:
    """A `corro run` that was started, and what its ranks have sent."""

    def __init__(self, call: bytes, command: list[str], env: dict[str, str]) -> None:
        self._outcome: dict[str, Any] | None = None
        self._sent: dict[int, bytearray] = {}
        self._buffer = bytearray()
        self._interrupted = 0
        self._call = memoryview(struct.pack("<Q", len(call)) + call)
        out, err = _Text(sys.stdout, 1), _Text(sys.stderr, 2)
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*command, f"--corro-call={theirs.fileno()}", "--", *_RANK],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out.target,
                stderr=err.target,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # A Ctrl-C is for this process, which passes it on.
            )
        self._socket.setblocking(False)
        self._selector = selectors.DefaultSelector()
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        self._selector.register(self._socket, both, self._on_socket)
        for pipe, text in ((self._process.stdout, out), (self._process.stderr, err)):
            if pipe is not None:
                self._selector.register(pipe, selectors.EVENT_READ, self._shower(pipe, text))

    def wait(self) -> None:
        """Waits until the launcher has ended; a Ctrl-C meanwhile is raised then."""
        while self._selector.get_map():
            try:
                for key, events in self._selector.select():
                    key.data(events)
            except KeyboardInterrupt:
                self._interrupted += 1
                self._process.send_signal(signal.SIGINT)
        self._process.wait()
        if self._interrupted:
            raise KeyboardInterrupt

    def end(self) -> None:
        """Leaves nothing behind: without its caller the launcher stops the ranks."""
        self._selector.close()
        self._socket.close()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _shower(self, pipe: IO[bytes], text: _Text) -> Callable[[int], None]:
        def show(_events: int) -> None:
            data = os.read(pipe.fileno(), _PIECE)
            if not data:
                self._selector.unregister(pipe)
            text.show(data)

        return show

    def _on_socket(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._send_call()
        if events & selectors.EVENT_READ:
            self._receive()

    def _send_call(self) -> None:
        try:
            self._call = self._call[self._socket.send(self._call) :]
        except BlockingIOError:
            return
        except OSError:
            self._call = self._call[:0]  # It says why it does not want it.
        if not self._call:
            self._selector.modify(self._socket, selectors.EVENT_READ, self._on_socket)

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(self._socket)
        if self._interrupted:
            return  # Nobody wants it, and a frame may have been torn.
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= _FRAME.size:
            rank, size = _FRAME.unpack_from(self._buffer, at)
            end = at + _FRAME.size + size
            if end > len(self._buffer):
                break
            body = memoryview(self._buffer)[at + _FRAME.size : end]
            with body:
                if rank == _END:
                    self._outcome = json.loads(bytes(body))
                else:
                    self._sent.setdefault(rank, bytearray()).extend(body)
            at = end
        del self._buffer[:at]

    def results(self) -> list[Any]:
        """Returns what the ranks have returned, or raises what went wrong."""
        outcome = self._outcome
        if outcome is None:
            raise _without_a_word(self._process.returncode)
        text = outcome["text"].strip()
        if outcome["code"]:
            raise errors.make(outcome["code"], text, -1, "", "", False)
        if outcome["exit"]:
            raise self._failure(outcome["rank"], outcome["host"], text)
        return [self._result(place) for place in outcome["places"]]

    def _received(self, rank: int, kind: bytes) -> memoryview | None:
        """Returns what the rank has sent of this kind, if it is complete."""
        sent = self._sent.get(rank, bytearray())
        if len(sent) < _call.HEADER.size:
            return None
        said, size = _call.HEADER.unpack_from(sent)
        body = memoryview(sent)[_call.HEADER.size :]
        return body if said == kind and len(body) == size else None

    def _result(self, rank: int) -> Any:
        body = self._received(rank, _call.RESULT)
        if body is None:
            raise RankFailedError(f"corro.run: rank {rank} has ended without a result", rank=rank)
        try:
            return pickle.loads(body)
        except Exception as error:
            raise TypeError(
                f"corro.run: the result of rank {rank} cannot be made again here: {error}"
            ) from error

    def _failure(self, rank: int, host: str, text: str) -> BaseException:
        body = self._received(rank, _call.FAILURE)
        if body is None:
            return RankFailedError(text, rank=rank)
        packed, trace = pickle.loads(body)
        error: BaseException = RankFailedError(text, rank=rank)
        if packed:
            with suppress(Exception):
                error = pickle.loads(packed)
        error.__cause__ = RemoteTraceback(f"rank {rank} on {host}\n\n{trace}")
        return error


def _without_a_word(status: int) -> Exception:
    if status < 0:
        return errors.AbortedError(
            f"corro run was killed by {signal.Signals(-status).name}; every rank was stopped"
        )
    return InvalidArgumentError(f"corro run has ended with status {status} before any rank started")
