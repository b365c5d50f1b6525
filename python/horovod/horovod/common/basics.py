"""What every front end of Horovod has: init, ranks, what is built, the timeline."""

from __future__ import annotations

import os
from collections.abc import Sequence

import corro
from corro import _context
from horovod.common import handles, settings, timeline
from horovod.common import process_sets as sets
from horovod.common.exceptions import raised_as_horovods
from horovod.common.process_sets import ProcessSet
from horovod.common.variables import warn_of_unknown


def init(
    comm: Sequence[int] | None = None, process_sets: Sequence[ProcessSet] | str | None = None
) -> None:
    """Joins the job; without a launcher this process is the only rank.

    Args:
        comm: the ranks that take part; all if not given.
        process_sets: sets to register, the same on every rank; or "dynamic": they come later.
    """
    if is_initialized():
        return
    static: list[ProcessSet] = []
    if process_sets == "dynamic":
        os.environ[sets.DYNAMIC] = "1"
    elif isinstance(process_sets, str):
        raise ValueError(f"process_sets: a list of sets or 'dynamic', not {process_sets!r}")
    elif process_sets is not None:
        static = list(process_sets)
    warn_of_unknown()
    with settings.fusion_of_the_engine():
        corro.init(**settings.deadlines(os.environ))
        _context.arrive()
    _observe()
    world = corro.world() if not comm else corro.new_group(sorted(comm))
    try:
        sets.start(world, static)
    except BaseException:
        shutdown()
        raise


def enter_epoch() -> None:
    """Ranks have come or gone: as shutdown() and init(), in a world that corro has joined."""
    sets.end()
    _observe()
    sets.start(corro.world(), [])


def _observe() -> None:
    timeline.start_if_asked()
    settings.watch_stalls()


def shutdown() -> None:
    """Leaves the job, and forgets all handles; init() may follow."""
    handles.forget()
    sets.end()
    corro.shutdown()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Begins a timeline of all ranks, in Chrome's trace format; every rank calls it.

    One that is there ends. HOROVOD_TIMELINE has to be DYNAMIC, or a file, when init() is called.

    Args:
        file_path: the file, which rank 0 writes.
        mark_cycles: mark when operations were started together.
    """
    world()
    timeline.start(file_path, mark_cycles)


def stop_timeline() -> None:
    """Ends the timeline, if there is one; every rank calls it."""
    world()
    timeline.stop()


def is_initialized() -> bool:
    """Returns whether init() was called, and shutdown() was not."""
    return corro.is_initialized() and sets.global_process_set.group is not None


def world() -> corro.Group:
    """Returns the group of all ranks; ValueError before init()."""
    group = sets.global_process_set.group
    if group is None or not corro.is_initialized():
        raise ValueError(sets.NOT_INITIALIZED)
    return group


def _get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """Returns the ranks of each process set; scripts find it as mpi_ops._basics._get_..."""
    world()
    return sets.ranks_by_number()


def join() -> int:
    """Says that this rank has no more batches; returns the rank that said so last."""
    group = sets.member_group(sets.global_process_set, "join")
    with raised_as_horovods():
        return corro.join(group)


def rank() -> int:
    """Returns this process's rank: 0 ... size() - 1."""
    return world().rank()


def size() -> int:
    """Returns the number of ranks."""
    return world().size()


def local_rank() -> int:
    """Returns this process's rank on its host."""
    world()
    return corro.local_rank()


def local_size() -> int:
    """Returns the number of ranks on this host."""
    world()
    return corro.local_size()


def cross_rank() -> int:
    """Returns this host's number among the hosts that have this local_rank()."""
    world()
    return corro.cross_rank()


def cross_size() -> int:
    """Returns the number of hosts that have this local_rank()."""
    world()
    return corro.cross_size()


def is_homogeneous() -> bool:
    """Returns whether every host has equally many ranks."""
    world()
    return corro.is_homogeneous()


def mpi_threads_supported() -> bool:
    """Raises ValueError: there is no MPI."""
    world()
    raise ValueError("Horovod MPI is not enabled; Please make sure it's installed and enabled.")


def mpi_enabled() -> bool:
    """Returns False."""
    return False


def mpi_built() -> bool:
    """Returns False."""
    return False


def gloo_enabled() -> bool:
    """Returns True: what Horovod does by Gloo, corro does."""
    return True


def gloo_built() -> bool:
    """Returns True: what Horovod does by Gloo, corro does."""
    return True


def nccl_built() -> int:
    """Returns 0."""
    return 0


def ddl_built() -> bool:
    """Returns False."""
    return False


def ccl_built() -> bool:
    """Returns False."""
    return False


def cuda_built() -> bool:
    """Returns False."""
    return False


def rocm_built() -> bool:
    """Returns False."""
    return False
