"""What torch waits for: a Work for operations in the background, and its future.

A CorroWork goes through these states. It is *done* from the start where the caller's thread has
carried the operations out. Else begin() gives it the engine's work: it is *in flight* until the
engine says that this is over, and *finished* once somebody has noticed that and made the copies
that follow, for tensors that the engine cannot write itself. Whoever comes first makes them, under
a lock: a thread in wait(), a later barrier, or the thread that completes the future. What fails
stays with the work: everybody who waits for it gets the error.

A group keeps its works in flight in a dict, `unfinished`, for barriers. A work leaves it when it is
finished or has failed, or when a later one begins and finds that nothing is left to do.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as c10d

from corro._native import Work as NativeWork
from corro.errors import CorroError, FailedPreconditionError

if TYPE_CHECKING:
    from torch import Tensor

    from corro._context import Context


class CorroWork(c10d.Work):
    """Operations in the background, and the copies that follow them. Thread-safe."""

    # Those that are done from the start, as most are, keep these: making them costs time.
    _native: NativeWork | None = None
    _after: Sequence[Callable[[], None]] = ()
    _lock = threading.RLock()
    _error: BaseException | None = None
    _future: Any = None
    source: int | None = None
    _asked = True  # Somebody has waited.
    _event: threading.Event | None = None  # The profiler's event has ended.
    _earlier: Sequence[CorroWork] = ()  # A barrier's: it is over when they are.
    _unfinished: dict[CorroWork, None] = {}  # noqa: RUF012  # What it is in while it is not over.

    def __init__(self, context: Context, result: list[Tensor]) -> None:
        super().__init__()
        self._context = context
        self._result = result

    def begin(
        self,
        native: NativeWork,
        after: Sequence[Callable[[], None]],
        unfinished: dict[CorroWork, None] | None,
    ) -> None:
        """From now on wait() waits for `native` and then calls each of `after`, once.

        Until that is known to be over, the work is in `unfinished`.
        """
        self._after, self._lock, self._asked = after, threading.RLock(), False
        self._native = native
        if unfinished is not None:
            self._unfinished = unfinished
            for oldest in list(islice(unfinished, 2)):  # More than one: none pile up.
                if oldest.is_finished():
                    unfinished.pop(oldest, None)
            unfinished[self] = None

    def wait_for(self, earlier: Sequence[CorroWork]) -> None:
        """From now on wait() also waits for these works, whose errors stay theirs."""
        self._earlier = earlier

    def end_event_with(self, native: NativeWork, end: Callable[[], None]) -> None:
        """Calls `end` on a thread for callbacks once `native` is done; then only wait() returns."""
        self._event = ended = threading.Event()

        def note() -> None:
            end()
            ended.set()

        self._context.completions.watch(native, note)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Blocks until the result is there; raises what the operation failed with."""
        self._asked = True
        self._finish(timeout.total_seconds() or None)
        if self._error is not None:
            raise self._error
        return True

    def finish(self) -> None:
        """Blocks until nothing is left to do; what it failed with is for those who wait()."""
        with suppress(CorroError):
            self._finish(None)

    def _finish(self, seconds: float | None) -> None:
        native = self._native  # Another thread's _conclude() may take it away.
        if native is not None:
            if not native.done():
                self._context.completions.hand_on()
            try:
                native.wait(seconds)
            except BaseException:
                if native.done():
                    self._end_badly(native)
                raise
            self._unfinished.pop(self, None)
            self._conclude()
        for work in self._earlier:
            work.finish()
        self._earlier = ()
        if self._event is not None:
            self._context.completions.hand_on()
            self._event.wait(seconds)

    def _end_badly(self, native: NativeWork) -> None:
        """Lets go of tensors if nothing follows; an interrupt may come to a work that went well."""
        self._unfinished.pop(self, None)
        try:
            native.wait(None)
        except CorroError:
            self._after = ()

    def is_completed(self) -> bool:
        """Returns whether wait() would return at once."""
        native = self._native
        return (native is None or native.done()) and all(w.is_completed() for w in self._earlier)

    def is_finished(self) -> bool:
        """Returns whether nothing is left to do, not even a copy."""
        native = self._native
        return native is None or (not self._after and native.done())

    def exception(self) -> BaseException | None:
        """Returns what it failed with; None if it has not, or is not done."""
        if self.is_completed():
            try:
                self.wait()
            except Exception as error:
                return error
        return None

    def is_success(self) -> bool:
        """Returns whether it is done and has not failed."""
        return self.is_completed() and self.exception() is None

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def result(self) -> list[Tensor]:
        """Returns the output tensors."""
        return self._result

    def source_rank(self) -> int:
        """Returns whose message a receive without a source got."""
        if self.source is None:
            raise FailedPreconditionError(
                "corro: only a receive without a source has a source rank"
            )
        return self.source

    _source_rank = source_rank

    def get_future(self) -> Any:
        """Returns a future of the output tensors, completed by the engine's Python thread.

        If the operation fails, its wait() raises a RuntimeError with the text of the error.
        """
        if _inquiry.is_open:
            _inquiry.work = self
            return _NO_FUTURE
        with self._lock:  # One for all who ask: the engine tells of a work's end once.
            if self._future is None:
                self._future = self._make_future()
        return self._future

    def _make_future(self) -> Any:
        devices: Any = sorted({str(t.device) for t in self._result if t.is_cuda}) or None
        done: Any = torch.futures.Future(devices=devices)
        # Only what a callback raises is an error to torch's C++, such as DDP's reducer: to that an
        # exception of set_exception() is a value, and no list of tensors.
        future = done.then(lambda _: self._outcome())
        native = self._native
        if native is None or native.done():
            done.set_result(None)
        else:
            self._context.completions.hand_on()  # Who asks for it may wait for it.
            self._context.completions.watch(native, lambda: done.set_result(None))
        return future

    def _outcome(self) -> list[Tensor]:
        try:
            self.wait()
        except CorroError as error:
            self._context.failure = error
            raise
        return self._result

    def forget_result(self) -> bool:
        """Lets go of the tensors once someone has waited; result() has none then."""
        done = self._native is None or self._native.done()  # The latter if it failed.
        over = done and self._asked and (self._future is None or self._future.done())
        if over:
            self._result, self._future = [], None
        return over

    def _conclude(self) -> None:
        with self._lock:
            after, self._after = self._after, ()
            try:
                for step in after:
                    step()
            except Exception as error:
                self._error = error
            self._native = None


class FinishedWork(CorroWork):
    """A work whose operation the caller's thread has carried out. Its maker sets `_result`."""

    __init__ = c10d.Work.__init__

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:  # noqa: ARG002
        """Returns at once."""
        return True


class _Inquiry(threading.local):
    """Whether this thread asks which CorroWork is behind a Work of torch's."""

    is_open = False
    work: CorroWork | None = None


_inquiry = _Inquiry()
_NO_FUTURE: Any = torch.futures.Future()
_NO_FUTURE.set_result(None)


def work_behind(work: c10d.Work) -> CorroWork | None:
    """Returns the CorroWork that a Work of torch's holds; None if it is another back end's.

    torch 2.15 hands out a holder of what a back end in Python returns. The holder passes on wait()
    and get_future(), so the latter is used to find out who is asked.
    """
    _inquiry.is_open, _inquiry.work = True, None
    try:
        work.get_future()
    except RuntimeError:  # This back end has no futures.
        pass
    finally:
        _inquiry.is_open = False
    found, _inquiry.work = _inquiry.work, None
    return found


# What the holder does not pass on. Its is_completed() is False for ever, the others raise.
_NOT_PASSED_ON = (
    "is_completed",
    "is_success",
    "exception",
    "result",
    "source_rank",
    "_source_rank",
)


def complete_torchs_holder() -> None:
    """Makes a holder pass on the rest as well. Works of other back ends answer as before."""
    if not hasattr(c10d.Work.is_completed, "passes_on"):
        for name in _NOT_PASSED_ON:
            setattr(c10d.Work, name, _passing_on(name, getattr(c10d.Work, name)))


def _passing_on(name: str, of_torch: Callable[[c10d.Work], Any]) -> Callable[[c10d.Work], Any]:
    @functools.wraps(of_torch)
    def ask(self: c10d.Work) -> Any:
        work = work_behind(self)
        return of_torch(self) if work is None else getattr(work, name)()

    ask.passes_on = True  # type: ignore[attr-defined]
    return ask
