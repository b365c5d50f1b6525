"""torch's key-value stores, with which ranks find each other where no agent of corro runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from corro.errors import NotFoundError


class TorchStore:
    """A torch Store as the engine wants it."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, key: str, value: bytes) -> None:
        """Sets a key."""
        self._store.set(key, value)

    def get(self, key: str, timeout: float) -> bytes:
        """Returns a key's value once there is one."""
        check = getattr(self._store, "check", None)  # Prefixed stores have none before torch 2.3.
        if check is None or not check([key]):
            if check is not None and timeout < 0.01:  # A glance; torch would warn of the timeout.
                raise NotFoundError(f"torch's store has no {key}")
            try:
                self._store.wait([key], timedelta(seconds=max(timeout, 0.01)))
            except RuntimeError as error:  # torch's DistStoreError is one.
                raise NotFoundError(f"torch's store has no {key} after {timeout:.0f} s") from error
        return bytes(self._store.get(key))


def store_of_environment(timeout: float | None) -> TorchStore:
    """Returns the store at MASTER_ADDR and MASTER_PORT, where torchrun's ranks meet."""
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    limit = timedelta(seconds=timeout if timeout is not None else 300)
    store, _, _ = next(iter(rendezvous("env://", timeout=limit)))
    return TorchStore(PrefixStore("corro", store))
