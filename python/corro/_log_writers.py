"""Who else gets what corro.log() is given: TensorBoard, MLflow, Weights & Biases.

CORRO_LOG_TO names them: "tensorboard:runs/a,mlflow,wandb:project". Rank 0 alone writes: to these
tools a run is one series of values, and ranks that log the same would be so many runs.

Each tool has a process of its own (_log_tools.py), which imports it, and to which a thread hands
records over. So the rank that trains neither waits for a tool nor shares its interpreter with one:
importing MLflow takes seconds, and none of them can be opened any more once a program ends.

    writing    records wait in a queue until the process has taken them
    failed     the process is gone, and has said why; records are forgotten
    closed     at exit: what waited was written, or the patience was over

The queue is bounded. What does not fit is left out and counted; a line at the end says how much.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Sequence
from subprocess import PIPE, Popen, TimeoutExpired
from threading import Condition, Thread
from time import monotonic, time
from typing import Protocol

from corro import _context
from corro._log_tools import END, TOOLS
from corro.errors import CorroError, InvalidArgumentError

_VARIABLE = "CORRO_LOG_TO"
_MOST_WAITING = 1024  # Records: some MB of memory, and minutes of most trainings.
_PATIENCE = 30.0  # Seconds at exit.
_PROGRAM = "from corro._log_tools import main; main()"


class Writer(Protocol):
    """Takes what this rank logs, on the thread that logs it; never blocks."""

    def write(self, step: int, values: dict[str, float]) -> None:
        """Takes the values of a step, by their names."""

    def close(self) -> None:
        """Blocks until what was taken is written, for at most 30 s. Writes nothing from then on."""


class ToolWriter:
    """A process that writes to one tool, and the thread that hands records over. Thread-safe."""

    def __init__(
        self, name: str, command: Sequence[str], most_waiting: int = _MOST_WAITING
    ) -> None:
        """Starts the process, which reads lines from its standard input; `name` is for people."""
        self._name = name
        self._most = most_waiting
        self._changed = Condition()
        self._waiting: deque[str] = deque()
        self._taken = self._dropped = 0
        self._closing = self._failed = False
        self._pid = os.getpid()
        # It is no part of the job: it asks the agent for nothing.
        environment = {key: value for key, value in os.environ.items() if key != "CORRO_AGENT"}
        self._process = _start(command, environment)
        self._thread = Thread(target=self._hand_over, name=f"corro-log-{name}", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Takes the values of a step; never blocks."""
        line = json.dumps([time(), step, values]) + "\n"
        with self._changed:
            if self._failed or self._closing:
                return
            self._taken += 1
            if len(self._waiting) >= self._most:
                self._dropped += 1
                return
            self._waiting.append(line)
            self._changed.notify()

    def close(self, patience: float = _PATIENCE) -> None:
        """Blocks until all is written, for `patience` seconds at most, and says what is not."""
        with self._changed:
            if self._closing or os.getpid() != self._pid:  # A forked child has no such thread.
                return
            self._closing = True
            self._changed.notify()
        deadline = monotonic() + patience
        self._thread.join(patience)
        try:
            self._process.wait(max(0.0, deadline - monotonic()))
        except TimeoutExpired:
            self._process.kill()
            _say(f"{self._name} has not written the last values within {patience:g} s")
        if self._dropped:
            _say(
                f"{self._name} was slower than the training: {self._dropped} of {self._taken}"
                " records were left out"
            )

    def _hand_over(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            with pipe:
                while lines := self._next():
                    pipe.write("".join(lines).encode())
                    pipe.flush()
                pipe.write(END)
        except OSError:  # It has said why it is gone.
            with self._changed:
                self._failed = True
                self._waiting.clear()

    def _next(self) -> list[str]:
        """Waits for records, and takes them all; none once the writer is to close."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            lines = list(self._waiting)
            self._waiting.clear()
            return lines


def _start(command: Sequence[str], environment: dict[str, str]) -> Popen[bytes]:
    """Starts a process that Ctrl-C leaves alone: it ends when this one does."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return Popen(command, stdin=PIPE, env=environment)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _say(line: str) -> None:
    print(f"corro.log: {line}", file=sys.stderr, flush=True)


def _parse(text: str) -> dict[str, str]:
    """Returns the tools, and where in each: of "tensorboard:runs/a,mlflow"."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, where = part.partition(":")
        if name not in TOOLS or name in found:
            wrong = "there twice" if name in found else "no tool that is known"
            raise InvalidArgumentError(
                f"{_VARIABLE}={text}: {name!r} is {wrong}; give some of {', '.join(TOOLS)}, each"
                " once, as in tensorboard:runs/a,mlflow,wandb:project"
            )
        found[name] = where
    return found


def _open(wanted: dict[str, str]) -> list[Writer]:
    found: list[Writer] = []
    for name, where in wanted.items():
        try:
            found.append(ToolWriter(name, [sys.executable, "-c", _PROGRAM, name, where]))
        except OSError as error:
            _say(f"{name} gets no values: {sys.executable}: {error.strerror}")
    return found


_writers: list[Writer] | None = None


def writers() -> list[Writer]:
    """Returns the writers of this process: none on other ranks than 0.

    They are opened when rank 0 asks first; in an elastic job another process may be rank 0 later.

    Raises:
        InvalidArgumentError: CORRO_LOG_TO names a tool that is not known, or one twice.
    """
    global _writers
    if _writers is None:
        wanted = _parse(os.environ.get(_VARIABLE, ""))
        if wanted and not _is_first():
            return []
        _writers = _open(wanted)
    return _writers if _writers and _is_first() else []


def _is_first() -> bool:
    """Returns whether this is rank 0, or a process that is in no job."""
    if _context.is_outside():
        return False
    try:
        return _context.rank() == 0
    except CorroError:
        return os.environ.get("CORRO_RANK", "0") == "0"
