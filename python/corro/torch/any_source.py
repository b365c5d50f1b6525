"""Receives without a source: torch's recv(src=None).

The engine receives from a rank that is named. So a receive without a source posts one from every
other rank, each into memory of its own, and takes the first that is done. The others stay posted:
what they bring is for the next receive with that tag, also for one that names its source. So all
messages with that tag have to be of one size. A rank that has left brings nothing more: its
receives fail alone, and those from other ranks stay posted. That is an error once no rank is left
that could send. Any other failure of a receive ends the call that waits: a message that does not
fit, or the end of the group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from corro import _native
from corro._completion import Completions
from corro._context import Context, Group
from corro.errors import CorroError, InvalidArgumentError, RankLostError, TimeoutError
from corro.torch import arithmetic
from corro.torch.verbs import DTYPES, host_like, type_name
from corro.torch.works import CorroWork

if TYPE_CHECKING:
    from torch import Tensor

_YEAR = 365 * 24 * 3600.0  # Seconds: who waits has a deadline, what is posted has none.
Key = tuple[int, int]  # (tag, source)


class Posted:
    """The receives of one group that are posted for nobody in particular. Thread-safe."""

    def __init__(self, group: Group, completions: Completions) -> None:
        self._group, self._completions = group, completions
        self._changed = threading.Condition()  # Of a lock that its holder may take again.
        self._works: dict[Key, tuple[_native.Work, Tensor]] = {}  # The oldest first.
        self._gone: dict[int, RankLostError] = {}

    def has(self, tag: int, source: int) -> bool:
        """Returns whether the source's next message with this tag comes here."""
        return (tag, source) in self._works

    def post(self, tag: int, like: Tensor) -> None:
        """Posts a receive of a tensor like this one from every rank that has none with the tag."""
        for source in range(self._group.size()):
            if source == self._group.rank() or source in self._gone or self.has(tag, source):
                continue
            memory = host_like(like, like.shape)
            dtype, width = arithmetic.movable(memory)
            op = _native.Op(
                kind=_native.RECV,
                dtype=dtype,
                root=source,
                tag=tag,
                output=memory.data_ptr(),
                count=memory.numel() * width,
                timeout=_YEAR,
                element=None if memory.dtype in DTYPES else type_name(memory),
            )
            work = self._group.native.submit([op], memory)
            with self._changed:
                self._works[tag, source] = work, memory
            self._completions.watch(work, self._tell)

    def over(self, tag: int, sources: Sequence[int]) -> bool:
        """Returns whether take() would return, or raise, at once."""
        with self._changed:
            return self._find(tag, sources) is not None or self._all_gone(sources)

    def take(
        self, tag: int, sources: Sequence[int], like: Tensor, seconds: float
    ) -> tuple[int, _native.Work, Tensor]:
        """Blocks until a message of one of the sources is there; returns its source, too."""
        self._completions.hand_on()
        with self._changed:
            if not self._changed.wait_for(lambda: self.over(tag, sources), seconds):
                raise TimeoutError(
                    f"recv: waited for ranks {list(sources)} with tag {tag} for {seconds:g} s",
                    op="recv",
                )
            key = self._find(tag, sources)
            if key is None:
                raise self._nobody_is_left(tag, sources)
            work, memory = self._works.pop(key)
        work.wait()
        if (memory.dtype, memory.numel()) != (like.dtype, like.numel()):
            raise InvalidArgumentError(
                f"recv: {like.numel()} elements of {like.dtype} are wanted, but with tag {tag}"
                f" receives of {memory.numel()} of {memory.dtype} were posted without a source"
            )
        return key[1], work, memory

    def _find(self, tag: int, sources: Sequence[int]) -> Key | None:
        """Returns the receive that is done, or has failed: the one posted first.

        Those whose rank has left are forgotten.
        """
        keys = [key for key in self._works if key[0] == tag and key[1] in sources]
        done = (key for key in keys if self._works[key][0].done())
        return next((key for key in done if not self._forget_if_gone(key)), None)

    def _forget_if_gone(self, key: Key) -> bool:
        try:
            self._works[key][0].wait()
        except RankLostError as error:
            self._gone[key[1]] = error
            del self._works[key]
            return True
        except CorroError:
            pass  # For the call that takes it.
        return False

    def _all_gone(self, sources: Sequence[int]) -> bool:
        return all(source in self._gone for source in sources)

    def _nobody_is_left(self, tag: int, sources: Sequence[int]) -> RankLostError:
        errors = [self._gone[source] for source in sources]
        ranks = sorted({error.rank for error in errors})
        if len(ranks) == 1:  # The only other rank, or one whose loss ended the group.
            return errors[0]
        names = ", ".join(map(str, ranks[:-1]))
        return RankLostError(
            f"recv: waited for a message with tag {tag}, but ranks {names} and {ranks[-1]} have"
            " left the job or were lost",
            rank=ranks[0],
            op="recv",
        )

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()


class AnySourceWork(CorroWork):
    """A receive of what was posted; wait() brings the message to its tensor. Thread-safe."""

    def __init__(
        self,
        context: Context,
        tensor: Tensor,
        posted: Posted,
        tag: int,
        sources: Sequence[int],
        seconds: float,
    ) -> None:
        super().__init__(context, [tensor])
        self._posted, self._tag, self._sources, self._seconds = posted, tag, sources, seconds
        self._taking = threading.RLock()
        self._end: Callable[[], None] | None = None  # Of the profiler's event.

    def note_end_with(self, end: Callable[[], None]) -> None:
        """Calls `end` on a thread for callbacks once the message is there."""
        self._end = end

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Blocks until a message is there, and copies it to the tensor."""
        with self._taking:
            if self.source is None:
                tensor = self._result[0]
                seconds = timeout.total_seconds() or self._seconds
                found = self._posted.take(self._tag, self._sources, tensor, seconds)
                self.source, work, memory = found
                tensor.detach().copy_(memory)
                if self._end is not None:
                    self.end_event_with(work, self._end)
        return super().wait(timeout)

    def is_completed(self) -> bool:
        """Returns whether wait() would return at once."""
        return self.source is not None or self._posted.over(self._tag, self._sources)
