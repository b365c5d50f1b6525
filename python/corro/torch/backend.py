"""How a process group of torch.distributed comes to its engine, and the classes torch knows it by.

init_process_group and new_group call create(). It returns the operations as a subclass of Backend
where Python can override that (torch 2.15), of ProcessGroup before.

The world's group makes the process's engine, or uses the one that corro.init() has made. A group in
the world of another back end gets an engine of its own. All ranks find each other through torch's
store, if no agent of corro's runs them.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from torch._C import _distributed_c10d as c10d
from torch.distributed.distributed_c10d import default_pg_timeout

from corro import _context, _native
from corro._context import Context, Group
from corro.errors import FailedPreconditionError
from corro.torch.arithmetic import needs_newer
from corro.torch.default_group import default_group
from corro.torch.incarnation import agree
from corro.torch.process_group import Collectives
from corro.torch.reconfigurable import ReconfigurableGroup
from corro.torch.store import TorchStore, timeout_of_environment
from corro.torch.works import CorroWork, complete_torchs_holder

# Works whose tensors are kept although nobody may ask for them any more; before torch 2.15 only.
_RESULTS_KEPT = 16


class _Without:
    """Answers False where torch asks whether a back end supports something."""


# torch's own answer for a subclass in Python asks the subclass, for ever.
for _name, _value in vars(c10d.Backend).items():
    if isinstance(_value, property) and _name.lstrip("_").startswith("supports_"):
        setattr(_Without, _name, property(lambda _: False))


class CorroBackend(Collectives, _Without, c10d.Backend):
    """torch 2.15 and later call the operations through Backend."""

    # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps a back end so that torch holds only its half in C++.
    _wrapped: ClassVar[set[CorroBackend]] = set()

    def __init__(
        self, context: Context, group: Group, store: TorchStore, timeout: timedelta, owner: bool
    ) -> None:
        c10d.Backend.__init__(self, group.rank(), group.size())
        Collectives.__init__(self, context, group, store, timeout, owner)
        self._options = c10d.Backend.Options("corro", timeout)
        complete_torchs_holder()
        if c10d.get_debug_level() == c10d.DebugLevel.DETAIL:
            self._wrapped.add(self)

    def shutdown(self) -> None:
        """Leaves the group, and the job if init_process_group has joined it."""
        self._wrapped.discard(self)
        super().shutdown()

    @property
    def options(self) -> c10d.Backend.Options:
        """torch's options of this group."""
        return self._options


class CorroProcessGroup(Collectives, c10d.ProcessGroup):  # type: ignore[misc]
    """Older torch calls the operations through ProcessGroup, under older names."""

    def __init__(
        self,
        context: Context,
        group: Group,
        store: TorchStore,
        timeout: timedelta,
        owner: bool,
        name: str,
    ) -> None:
        c10d.ProcessGroup.__init__(self, group.rank(), group.size())
        Collectives.__init__(self, context, group, store, timeout, owner)
        self._name = name
        # This torch keeps only the C++ half of a Work, and calls it a little later.
        self._works: deque[CorroWork] = deque(maxlen=4096)
        self._with_results: deque[CorroWork] = deque(maxlen=4096)

    def _keep(self, work: CorroWork) -> CorroWork:
        self._works.append(work)
        kept = self._with_results
        kept.append(work)
        for _ in range(2):  # More than one, so that what was not over at first leaves as well.
            if len(kept) > _RESULTS_KEPT and not (oldest := kept.popleft()).forget_result():
                kept.append(oldest)
        return work

    @property
    def group_name(self) -> str:  # type: ignore[override]
        """What functional collectives ask for first, and who ends a group."""
        if sys._getframe(1).f_code.co_name == "destroy_process_group":
            return self._name
        raise needs_newer("functional collectives (DTensor, FSDP2)")


def create(options: Any, backend_options: Any) -> Collectives:  # noqa: ARG001
    """Makes a process group's object: what init_process_group and new_group call."""
    rank, size, timeout = options.group_rank, options.group_size, _timeout(options)
    if getattr(options, "enable_reconfigure", False):
        return _reconfigurable(options, timeout)
    store = _store_of_this_life(options, timeout)
    ranks = list(options.global_ranks_in_group) or list(range(size))
    is_world = not options.global_ranks_in_group
    owner = False
    if is_world:
        default_group.timeout = options.timeout
    if is_world and not _context.is_initialized():
        _join(store, rank, size, timeout)
        owner = True
    context = _shared_context(ranks, rank)
    if context is None:  # The world belongs to another back end: an engine for this group alone.
        context = _private_context(options, store)
        ranks, owner = list(range(size)), True
    # Its members have torch's name for it; the world's other group is torch's own, too.
    group = context.new_group(ranks, f"torch/{options.group_id}/{store.incarnation}")
    if _backend_can_be_subclassed():
        return CorroBackend(context, group, store, timeout, owner)
    return CorroProcessGroup(context, group, store, timeout, owner, options.group_id)


def _reconfigurable(options: Any, timeout: timedelta) -> Collectives:
    if _context.membership() is not None:
        raise FailedPreconditionError(
            "corro: enable_reconfigure=True in an elastic job: corro makes the group again itself"
            " there, in each membership epoch"
        )
    place = (options.group_rank, options.group_size)
    return ReconfigurableGroup(*place, options.store, options.group_id, timeout)


def _store_of_this_life(options: Any, timeout: timedelta) -> TorchStore:
    """Returns the group's store without keys that were there before.

    torch gives a group that is made again the same store and name, and so does torchrun to ranks
    that it starts again.
    """
    ours = c10d.PrefixStore("corro", options.store)
    incarnation = agree(ours, options.group_rank, options.group_size, timeout.total_seconds())
    return TorchStore(c10d.PrefixStore(incarnation, ours), incarnation)


def _private_context(options: Any, store: TorchStore) -> Context:
    engine = _native.Engine(
        rank=options.group_rank,
        size=options.group_size,
        job=f"torch/{options.group_id}/{store.incarnation}",
        store=store,
        timeout=_timeout(options).total_seconds(),
    )
    return Context(engine, store)


def _timeout(options: Any) -> timedelta:
    """Returns the group's deadline: CORRO_TIMEOUT where torch was given none."""
    given: timedelta = options.timeout
    seconds = timeout_of_environment() if given == default_pg_timeout else None
    return given if seconds is None else timedelta(seconds=seconds)


def _join(store: TorchStore, rank: int, size: int, timeout: timedelta) -> None:
    """Makes this process's engine, through `corro run`'s agent or else through torch's store."""
    if os.environ.get("CORRO_RANK") == str(rank) and os.environ.get("CORRO_SIZE") == str(size):
        _context.init(timeout=timeout.total_seconds())
    else:
        _context.start(
            rank=rank,
            size=size,
            store=store,
            incarnation=store.incarnation,
            timeout=timeout.total_seconds(),
        )


def _shared_context(ranks: Sequence[int], rank: int) -> Context | None:
    """Returns the process's engine if its ranks are torch's."""
    if not _context.is_initialized():
        return None
    context = _context.current()
    mine = context.engine.rank
    return context if max(ranks) < context.engine.size and ranks[rank] == mine else None


def _backend_can_be_subclassed() -> bool:
    """Returns whether this torch lets Python override Backend's operations."""

    class Probe(c10d.Backend):
        pass

    try:
        Probe(0, 1)
    except TypeError:
        return False
    return True
