"""torch's default process group in an elastic job: one for each epoch.

torch's group is of the ranks that init_process_group() was told, for its life. So where ranks have
come or gone, corro ends it, and all ranks of the new epoch make another one: rank 0 opens a store
of torch's, and tells the others where it is. A rank that is new gets its first one so. DDP goes on
with the new group, and finds its buckets anew.

Groups that are made of the default one, and meshes of devices, are over with it.
"""

from __future__ import annotations

import gc
import os
from datetime import timedelta

from torch import distributed
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from corro import _context
from corro._autoload import is_corro
from corro._objects import broadcast_bytes
from corro.errors import CorroError, UnavailableError

_MOST_CONNECTING = timedelta(seconds=30)
_NONE = -1


class DefaultGroup:
    """What of it outlives an epoch. Externally synchronized."""

    def __init__(self) -> None:
        self.timeout = timedelta(0)  # As init_process_group() was given it.
        self._is_owed = False  # It was ended here, and the next one is not made yet.
        self._ddp: list[DistributedDataParallel] = []  # That wait for it.

    def renew(self) -> None:
        """Makes the group of the epoch that has begun, if any of its ranks had one before.

        Blocks until all ranks of the epoch have called it. Leaves other back ends' groups alone.

        Raises:
            CorroError: a rank was lost meanwhile.
        """
        self._end()
        own = self.timeout // timedelta(microseconds=1) if self._is_owed else _NONE
        longest = max(row[0] for row in _context.exchange(_context.world(), [own]))
        if longest == _NONE:
            return
        self._make_for_epoch(timedelta(microseconds=longest))
        for one in self._ddp:
            one._update_process_group(distributed.group.WORLD)  # type: ignore[no-untyped-call]
        self._ddp.clear()

    def ensure(self) -> None:
        """Makes the group if there is none, on all ranks. Blocks until all have called it.

        Raises:
            CorroError: a rank was lost meanwhile.
        """
        if not distributed.is_initialized():
            self._make_for_epoch(distributed_c10d.default_pg_timeout)

    def _make_for_epoch(self, timeout: timedelta) -> None:
        self._is_owed = True
        try:
            _make(timeout)
        except RuntimeError as error:
            if isinstance(error, CorroError):
                raise
            raise UnavailableError(f"torch's store of this epoch has failed: {error}") from error
        self._is_owed = False

    def _end(self) -> None:
        if not distributed.is_initialized() or not is_corro(distributed.get_backend()):
            return
        # Those that are reached no more go: they would be told of gradients, too.
        gc.collect()
        self._ddp += _of_group(distributed.group.WORLD)
        distributed.destroy_process_group()
        self._is_owed = True


default_group = DefaultGroup()


def _make(timeout: timedelta) -> None:
    rank, size = _context.rank(), _context.size()
    store = None

    def open_store() -> bytes:
        nonlocal store
        host = os.environ.get("CORRO_LISTEN") or "127.0.0.1"
        store = c10d.TCPStore(host, 0, size, True, _MOST_CONNECTING, wait_for_workers=False)
        return f"{host} {store.port}".encode()

    told = broadcast_bytes("init_process_group", open_store, 0, _context.world()).decode()
    if store is None:
        host, port = told.split()
        store = c10d.TCPStore(
            host, int(port), size, False, _MOST_CONNECTING, wait_for_workers=False
        )
    store.set_timeout(timeout)
    # Groups are numbered, and an attempt that failed has a number: on some ranks perhaps.
    distributed_c10d._world.group_count = 0
    distributed.init_process_group(
        "corro", store=store, rank=rank, world_size=size, timeout=timeout
    )


def _of_group(group: object) -> list[DistributedDataParallel]:
    """Returns the living ones of the group, wherever the program keeps them."""
    return [
        one
        for one in gc.get_objects()
        if issubclass(type(one), DistributedDataParallel) and one.process_group is group
    ]
