"""torch's key-value stores, with which ranks find each other where no agent of corro runs."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

from corro.errors import InvalidArgumentError, NotFoundError, TimeoutError

_DEFAULT_TIMEOUT = 60.0  # Seconds; the engine's.
_YEAR = 365 * 24 * 3600.0


class TorchStore:
    """A torch Store as the engine wants it. Its `incarnation` tells this life of its ranks from
    others, if they have agreed on one."""

    def __init__(self, store: Any, incarnation: str = "") -> None:
        self._store = store
        self.incarnation = incarnation

    def put(self, key: str, value: bytes) -> None:
        """Sets a key."""
        self._store.set(key, value)

    def get(self, key: str, timeout: float) -> bytes:
        """Returns a key's value once there is one."""
        end, pause = time.monotonic() + timeout, 0.0005
        while not self._has(key):  # torch's own wait does not listen to signals.
            if time.monotonic() >= end:
                raise NotFoundError(f"torch's store has no {key}")
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        return bytes(self._store.get(key))

    def peek(self, key: str) -> bytes | None:
        """Returns a key's value, None if there is none; does not wait."""
        return bytes(self._store.get(key)) if self._has(key) else None

    def _has(self, key: str) -> bool:
        check = getattr(self._store, "check", None)
        if check is not None:
            return bool(check([key]))
        # Prefixed stores have none before torch 2.3. What is not there comes back as expected.
        return bytes(self._store.compare_set(key, "?", "?")) != b"?"


def timeout_of_environment() -> float | None:
    """Returns CORRO_TIMEOUT in seconds; None if it is not set."""
    text = os.environ.get("CORRO_TIMEOUT")
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= _YEAR:
        raise InvalidArgumentError(  # As the engine says it.
            f"CORRO_TIMEOUT={text}: expected a number of seconds above 0, at most those of a year"
        )
    return seconds


def store_of_environment(timeout: float | None) -> TorchStore:
    """Returns the store at MASTER_ADDR and MASTER_PORT, where torchrun's ranks meet."""
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    from corro.torch.incarnation import agree

    seconds = timeout or timeout_of_environment() or _DEFAULT_TIMEOUT
    end = time.monotonic() + seconds
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=timedelta(seconds=seconds))))
    except RuntimeError as error:  # torch's DistStoreError and DistNetworkError are.
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise TimeoutError(
            f"corro.init: torch's store at {place} did not bring the ranks together within "
            f"{seconds:g} s: are all {os.environ['WORLD_SIZE']} ranks running? ({error})"
        ) from error
    ours = PrefixStore("corro", store)
    incarnation = agree(ours, rank, size, max(0.0, end - time.monotonic()))
    return TorchStore(PrefixStore(incarnation, ours), incarnation)
