"""Which life of its ranks a group in torch's store belongs to.

torchrun starts ranks again on the store that their last attempt used; so does a program that runs
itself again by exec, or makes a group twice. The store then still has the keys of ranks that are
dead, and a count of attempts does not tell them apart: torchrun's differs between hosts, and a rank
may have ended before it counted. So the ranks of a group agree on an *incarnation* before they use
any other key, and put it before all of those.

- Each rank makes up a word and writes it under its rank number. It also counts in `words`, so that
  rank 0 sees that something was written.
- Rank 0's word is the incarnation. Rank 0 writes `roll`: its own word, and the word it has read of
  each rank. Some may be those of dead ranks.
- A rank takes the incarnation of a roll that has the word it has made up itself: whoever wrote this
  roll has lived at the same time. A roll without its word is of another life, or older than the
  word, and the rank waits for the next one.
- When `words` counts further, rank 0 reads the words again and writes the roll anew, with the same
  incarnation, until every rank has taken it. It counts those at a key of this incarnation alone.

A rank of an earlier life that still waits never finds its word in a roll once a new rank has its
number: it fails at its deadline.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from typing import Any

from corro import _context
from corro.errors import AbortedError, TimeoutError
from corro.torch.store import TorchStore

_FIRST_PAUSE = 0.0005  # Seconds.
_LONGEST_PAUSE = 0.02


def agree(store: Any, rank: int, size: int, timeout: float) -> str:
    """Returns the same new word on every rank of a group; blocks until all ranks have come.

    Args:
        store: torch's, the same on all ranks and of this group alone.
        rank: in the group.
        size: of the group.
        timeout: in seconds; a TimeoutError then names the ranks that have not come.
    """
    own = secrets.token_hex(8)
    if size == 1:
        return own
    member = _Member(store, rank, size, own)
    if rank == 0:
        return member.lead(timeout)
    return member.follow(timeout)


class _Member:
    def __init__(self, store: Any, rank: int, size: int, word: str) -> None:
        self._store = store
        self._keys = TorchStore(store)
        self._rank = rank
        self._size = size
        self._word = word

    def lead(self, timeout: float) -> str:
        """Writes rolls until all other ranks have taken one."""
        seen = -1

        def all_have_come() -> bool:
            nonlocal seen
            count = self._store.add("words", 0)
            if count != seen:
                seen = count
                self._write_roll()
            return bool(self._store.add(f"{self._word}/came", 0) >= self._size - 1)

        if _until(all_have_come, timeout):
            return self._word
        missing = [str(r) for r in range(1, self._size) if not self._has_come(r)]
        raise TimeoutError(
            f"corro: rank 0 of {self._size} ranks waited {timeout:g} s at torch's store for rank "
            f"{', '.join(missing)}: are all ranks running?"
        )

    def follow(self, timeout: float) -> str:
        """Takes the first roll that has the own word."""
        self._keys.put(f"word/{self._rank}", self._word.encode())
        self._store.add("words", 1)
        roll: list[str] = []

        def is_listed() -> bool:
            nonlocal roll
            roll = json.loads(self._keys.peek("roll") or b"[]")
            return len(roll) == self._size and roll[self._rank] == self._word

        if not _until(is_listed, timeout):
            raise TimeoutError(
                f"corro: rank {self._rank} of {self._size} ranks waited {timeout:g} s at torch's "
                "store for rank 0: are all ranks running?"
            )
        self._keys.put(f"{roll[0]}/came/{self._rank}", b"")
        self._store.add(f"{roll[0]}/came", 1)
        return roll[0]

    def _write_roll(self) -> None:
        others = [self._keys.peek(f"word/{rank}") or b"" for rank in range(1, self._size)]
        roll = [self._word, *(word.decode() for word in others)]
        self._keys.put("roll", json.dumps(roll).encode())

    def _has_come(self, rank: int) -> bool:
        return self._keys.peek(f"{self._word}/came/{rank}") is not None


def _until(condition: Callable[[], bool], timeout: float) -> bool:
    """Asks again and again; returns False once the time is over.

    Raises AbortedError if another epoch comes: a rank of this one may have been lost.
    """
    end, pause = time.monotonic() + timeout, _FIRST_PAUSE
    while not condition():
        if (member := _context.membership()) is not None and member.is_over():
            raise AbortedError(f"the epoch has ended: {member.why}")
        if time.monotonic() >= end:
            return False
        time.sleep(pause)  # torch's own wait does not listen to signals.
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True
