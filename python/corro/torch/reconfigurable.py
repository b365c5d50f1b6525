"""A process group whose members torch's reconfigure() may change, while its processes live on.

torch.distributed's contract (2.15, experimental): init_process_group("corro",
enable_reconfigure=True) makes a group that has no members yet. Each process gives out its handle;
whoever brings processes together passes the handles of all members to each of them, with a new
number, in reconfigure(). When a member is lost, operations fail on the others, and they call
reconfigure() with the handles of those that are left, or have come.

It is a ProcessGroup, since torch keeps the rank and the size of a Backend in C++, for ever. Each
reconfigure() makes an engine of its own; its members find each other in torch's store, below the
number. Torch's store has to outlive them all.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch._C import _distributed_c10d as c10d

from corro import _native
from corro._context import Context
from corro.errors import AlreadyExistsError, CorroError, InvalidArgumentError
from corro.torch.process_group import Collectives
from corro.torch.store import TorchStore
from corro.torch.works import FinishedWork, complete_torchs_holder


class ReconfigurableGroup(Collectives, c10d.ProcessGroup):  # type: ignore[misc]
    """Externally synchronized, as all of torch's groups."""

    def __init__(self, rank: int, size: int, store: Any, name: str, timeout: timedelta) -> None:
        c10d.ProcessGroup.__init__(self, rank, size)
        complete_torchs_holder()
        self._store = store
        self._name = name
        self._timeout = timeout
        self._handle = f"corro:{name}:{secrets.token_hex(16)}"
        self._used: set[int] = set()
        self._place = (rank, size)
        self._fail("reconfigure() has not been called")

    @property
    def supports_reconfigure(self) -> bool:
        """Whether reconfigure() works: yes."""
        return True

    def get_reconfigure_handle(self) -> str:
        """Returns what others name this process by: the same for the life of the group."""
        return self._handle

    def reconfigure(self, opts: Any) -> c10d.Work:
        """Makes the processes of these handles the members: a list in the order of their ranks.

        Blocks until all of them have called it with the same handles and number. Operations that
        are in flight fail. If it fails, so do operations until it is called again.

        Args:
            opts: torch's ReconfigureOptions. `uuid` is new each time; of a set of handles, the
                order is theirs as texts; without a `timeout` it is the group's. Hints are ignored.

        Raises:
            InvalidArgumentError: this process's handle is not among them, or one is there twice.
            AlreadyExistsError: the number was used before.
            TimeoutError: a member has not called it in time; the text names its rank.
        """
        handles = list(opts.handles) if isinstance(opts.handles, list) else sorted(opts.handles)
        self._check(handles, opts.uuid)
        timeout = self._timeout if opts.timeout is None else opts.timeout
        if not self._context.engine.closed:  # abort() may have been called.
            self._context.leave(f"reconfigure() has been called, with the uuid {opts.uuid}")
        self.shutdown()
        self._used.add(opts.uuid)
        try:
            self._meet(handles, opts.uuid, timeout)
        except CorroError as error:
            self._fail(f"the last reconfigure() has failed: {error}")
            raise
        work: c10d.Work = FinishedWork()
        return work

    def rank(self) -> int:
        """Returns this process's rank among the members; before there are any, torch's."""
        return self._place[0]

    def size(self) -> int:
        """Returns the number of members; before there are any, torch's."""
        return self._place[1]

    getRank = rank  # noqa: N815  # The names by which C++ asks.
    getSize = size  # noqa: N815

    def _check(self, handles: Sequence[str], number: int) -> None:
        if self._handle not in handles:
            raise InvalidArgumentError(
                "reconfigure: the handle of this process is not among those of the members"
            )
        if len(set(handles)) < len(handles):
            raise InvalidArgumentError("reconfigure: a handle is there twice")
        if number in self._used:
            raise AlreadyExistsError(
                f"reconfigure: the uuid {number} was used before: pass a new one each time"
            )

    def _meet(self, handles: Sequence[str], number: int, timeout: timedelta) -> None:
        rank = handles.index(self._handle)
        # Members that were told different handles do not take each other for the same group.
        told = hashlib.sha256("\n".join(handles).encode()).hexdigest()[:16]
        self._enter(rank, len(handles), f"{number}/{told}", timeout)
        self._place = (rank, len(handles))

    def _fail(self, why: str) -> None:
        """Operations fail with this reason, in a world of this process alone."""
        self._enter(0, 1, self._handle, self._timeout)
        self._context.leave(why)

    def _enter(self, rank: int, size: int, name: str, timeout: timedelta) -> None:
        store = TorchStore(c10d.PrefixStore(f"corro/reconfigure/{name}", self._store))
        engine = _native.Engine(
            rank=rank,
            size=size,
            job=f"torch/{self._name}/{name}",
            store=store,
            timeout=timeout.total_seconds(),
        )
        context = Context(engine, store)
        Collectives.__init__(self, context, context.world, store, self._timeout, owner=True)
