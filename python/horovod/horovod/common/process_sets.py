"""ProcessSet: a group of ranks, under Horovod's names and numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import corro

if TYPE_CHECKING:
    from corro import _native

DYNAMIC = "HOROVOD_DYNAMIC_PROCESS_SETS"
NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


class ProcessSet:
    """Ranks that run collectives together.

    `process_set_id` is None, and nothing else is known, before it is given to `init` or to
    `add_process_set`, and after `remove_process_set`.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm = None

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        ranks = list(ranks_or_comm)  # It may be read once.
        if not all(isinstance(rank, int) for rank in ranks):
            raise ValueError("ProcessSet: expected the ranks, as a list of whole numbers")
        self.ranks = sorted(ranks)
        self.group: corro.Group | None = None
        self.native: _native.Group | None = None  # The engine's; of a registered set's members.
        self.counts: dict[str, Iterator[int]] = {}  # By kind, of operations without a name.

    def serve(self, group: corro.Group | None) -> None:
        """Operations of this set are the group's from now on; None: there are none."""
        self.counts = {}
        self.group = group
        self.native = group.native if group is not None and group.included() else None
        if self.native is not None and self.process_set_id is not None:
            self.native.number(self.process_set_id)  # Graphs know the set by it.

    def size(self) -> int | None:
        """Returns the number of ranks; None if it is not registered."""
        return None if self.process_set_id is None or self.ranks is None else len(self.ranks)

    def rank(self) -> int | None:
        """Returns this process's rank in the set; None if it is not registered."""
        if self.group is None:
            return None
        if not self.group.included():
            raise ValueError(f"rank {corro.rank()} is not in {self!r}")
        return self.group.rank()

    def included(self) -> bool | None:
        """Returns whether this process is in the set; None if it is not registered."""
        return None if self.group is None else self.group.included()

    def __repr__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks},"
            f" mpi_comm={self.mpi_comm})"
        )


class _World(ProcessSet):
    def __init__(self) -> None:
        super().__init__([])
        self.process_set_id = 0
        self.ranks = None


global_process_set = _World()

_sets: dict[int, ProcessSet] = {}


def start(world: corro.Group, sets: Sequence[ProcessSet]) -> None:
    """Registers the world and what init() was given; on all ranks the same."""
    _sets.clear()
    global_process_set.serve(world)
    global_process_set.ranks = list(world.ranks)
    _sets[0] = global_process_set
    for i, one in enumerate(sets):
        if _find(one.ranks or []) is not None:
            raise ValueError(f"process_sets: entry number {i} is a duplicate: {one!r}")
        _register(one)


def end() -> None:
    """Forgets all of them."""
    for one in _sets.values():
        one.serve(None)
        if one is not global_process_set:
            one.process_set_id = None
    global_process_set.ranks = None
    _sets.clear()


def _find(ranks: Sequence[int]) -> ProcessSet | None:
    return next((one for one in _sets.values() if one.ranks == sorted(ranks)), None)


def _register(one: ProcessSet) -> None:
    assert one.ranks is not None
    if one.ranks and one.ranks[-1] >= corro.size():
        raise ValueError(f"{one!r}: the ranks are 0 to {corro.size() - 1}")
    group = corro.new_group(one.ranks)  # Refuses what are no ranks.
    one.process_set_id = max(_sets) + 1
    one.serve(group)
    _sets[one.process_set_id] = one


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Registers a set after init(); returns once every rank has called it with the same ranks."""
    one = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    _need_dynamic()
    if one.process_set_id is not None or _find(one.ranks or []) is not None:
        raise ValueError(f"Attempted to add a duplicate process set: {one!r}")
    corro.barrier()
    _register(one)
    return one


def remove_process_set(process_set: ProcessSet) -> bool:
    """Takes a set out again, on every rank; returns whether it was registered."""
    _need_dynamic()
    known = process_set.process_set_id
    if known is None or known == 0:
        return False
    corro.barrier()
    del _sets[known]
    process_set.process_set_id = None
    process_set.serve(None)
    return True


def ids_and_ranks() -> dict[int, list[int]]:
    """Returns the ranks of every registered set, by its number."""
    return {number: list(one.ranks or []) for number, one in _sets.items()}


def _need_dynamic() -> None:
    if os.environ.get(DYNAMIC, "0") in ("", "0"):
        raise ValueError(
            f'process sets are fixed: call hvd.init(process_sets="dynamic") or set {DYNAMIC}=1'
        )


def member_group(process_set: ProcessSet, operation: str) -> corro.Group:
    """Returns the group of a registered set; ValueError if it is none, or this rank not in it."""
    group = process_set.group
    if group is None or not corro.is_initialized():
        if process_set is global_process_set or not corro.is_initialized():
            raise ValueError(NOT_INITIALIZED)
        raise ValueError(
            f"{operation.capitalize()}: Process set provided does not exist, or has not been "
            f"registered. It is {process_set!r}"
        )
    if not group.included():
        raise ValueError(
            f"{operation.capitalize()}: Rank {corro.rank()} is not a member of the provided "
            f"process set. It is {process_set!r}"
        )
    return group
