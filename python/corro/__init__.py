"""corro: collectives and a launcher for distributed deep learning.

    import corro.torch as corro

    corro.init()
    print(f"rank {corro.rank()} of {corro.size()}")

This package alone needs neither numpy nor torch: the verbs are in corro.numpy and corro.torch.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from corro._context import (
    Group,
    barrier,
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    new_group,
    node_rank,
    rank,
    set_step,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
    watch_waits,
    world,
)
from corro._log import log
from corro._reduce_op import Adasum, Average, Max, Min, Product, ReduceOp, Sum
from corro.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    CorroError,
    DataLossError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    MismatchError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    RankFailedError,
    RankLostError,
    ResourceExhaustedError,
    TimeoutError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)

__all__ = [
    "AbortedError",
    "Adasum",
    "AlreadyExistsError",
    "Average",
    "CancelledError",
    "CorroError",
    "DataLossError",
    "FailedPreconditionError",
    "Firing",
    "Graph",
    "Group",
    "InternalError",
    "InvalidArgumentError",
    "LoadedPlan",
    "Max",
    "Min",
    "MismatchError",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "Plan",
    "Planned",
    "Product",
    "RankFailedError",
    "RankLostError",
    "ReduceOp",
    "ResourceExhaustedError",
    "Sum",
    "TimeoutError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "__version__",
    "allgather_object",
    "barrier",
    "broadcast_object",
    "cross_rank",
    "cross_size",
    "fit",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_plan",
    "local_rank",
    "local_size",
    "log",
    "new_group",
    "node_rank",
    "parallelize",
    "plan",
    "rank",
    "run",
    "set_step",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "watch_waits",
    "world",
]

if TYPE_CHECKING:
    from corro._objects import allgather_object, broadcast_object
    from corro._run import run
    from corro.graph import Plan
    from corro.loaded_plan import Firing, LoadedPlan, load_plan
    from corro.planned import Planned
    from corro.planner import plan

if "CORRO_AGENT" in os.environ:  # Else nobody asks, and `import torch` imports this package.
    from corro import _where

    _where.offer()


def __getattr__(name: str) -> Any:
    # Not before they are asked for: dataclasses take longer to import than all else.
    if name in ("Firing", "LoadedPlan", "load_plan"):
        from corro import loaded_plan

        return getattr(loaded_plan, name)
    if name == "Plan":
        from corro.graph import Plan

        return Plan
    if name in ("Planned", "plan"):
        from corro import planner

        return getattr(planner, name)
    if name in ("checkpoint", "elastic"):
        return import_module(f"corro.{name}")
    if name in ("allgather_object", "broadcast_object"):
        from corro import _objects

        return getattr(_objects, name)
    if name == "run":
        from corro._run import run

        return run
    if name in ("fit", "parallelize"):
        return getattr(import_module("corro.torch.parallel"), name)
    if name == "Graph":
        return import_module("corro.torch.services").Graph
    if name == "__version__":
        from corro import _native

        return _native.version()
    hint = "" if name.startswith("_") else "; operations are in corro.numpy and corro.torch"
    if name in ("numpy", "torch"):
        hint = f"; import corro.{name} first"
    raise AttributeError(f"module 'corro' has no attribute {name!r}{hint}")
