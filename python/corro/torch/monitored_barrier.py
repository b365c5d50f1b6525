"""torch's monitored_barrier: a barrier in which rank 0 finds out who does not come.

Ranks meet in torch's store and not in the engine: a barrier that fails leaves nothing behind that a
later operation could meet. Every rank says there that it has come; rank 0 waits for them, in order,
and then says who is missing. The n-th barrier of a group has keys of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from corro.errors import NotFoundError, TimeoutError
from corro.torch.store import TorchStore


class MonitoredBarrierError(TimeoutError, RuntimeError):
    """Not all ranks came to a monitored_barrier. torch's own back ends raise a RuntimeError."""


class MonitoredBarrier:
    """The monitored barriers of one group. Called by one thread at a time."""

    def __init__(self, store: TorchStore, ranks: Sequence[int], rank: int) -> None:
        self._store, self._ranks, self._rank = store, ranks, rank
        self._made = 0

    def wait(self, seconds: float, wait_all_ranks: bool) -> None:
        """Blocks until all ranks have come; raises who has not, on rank 0 all if so wanted."""
        self._made += 1
        key = f"monitored/{self._made}"
        if seconds <= 0:
            raise self._error(f"Rank {self._rank} timed out in monitoredBarrier after 0 ms", -1)
        if self._rank == 0:
            missing = self._missing(key, seconds, wait_all_ranks)
            self._store.put(key, json.dumps(missing).encode())
            if missing:
                who = f"Rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
                text = f"{who} failed to pass monitoredBarrier in {seconds * 1000:g} ms"
                raise self._error(text, self._ranks[missing[0]])
            return
        self._store.put(f"{key}/{self._rank}", b"")
        try:
            missing = json.loads(self._store.get(key, seconds))
        except NotFoundError:
            missing = [0]
        if missing:
            raise self._error(
                f"Rank {self._rank} successfully reached monitoredBarrier, but received errors "
                "while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank",
                self._ranks[missing[0]],
            )

    def _missing(self, key: str, seconds: float, wait_all_ranks: bool) -> list[int]:
        end, missing = time.monotonic() + seconds, []
        for rank in range(1, len(self._ranks)):
            try:
                self._store.get(f"{key}/{rank}", max(0.0, end - time.monotonic()))
            except NotFoundError:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        return missing

    def _error(self, text: str, culprit: int) -> MonitoredBarrierError:
        return MonitoredBarrierError(text, rank=culprit, op="monitored_barrier")
