"""Horovod for TensorFlow, on corro.

import horovod.tensorflow as hvd

hvd.init()
with tf.GradientTape() as tape:
    loss = loss_of(model(images), labels)
tape = hvd.DistributedGradientTape(tape)
"""

from typing import Any

import corro.tensorflow as _verbs  # noqa: F401  # First: it says what is wrong with TensorFlow.
from horovod.common import exported
from horovod.common.exported import *  # noqa: F403
from horovod.common.util import gpu_available
from horovod.tensorflow import elastic, mpi_ops
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.gradient_tape import (
    DistributedGradientTape,
    PartialDistributedGradientTape,
)
from horovod.tensorflow.hooks import BroadcastGlobalVariablesHook
from horovod.tensorflow.mpi_ops import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    reducescatter,
    size_op,
)
from horovod.tensorflow.optimizer import DistributedOptimizer
from horovod.tensorflow.util import _executing_eagerly as _executing_eagerly

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",  # noqa: F405  # Of __getattr__().
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "elastic",
    "gpu_available",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "local_rank_op",
    "local_size_op",
    "mpi_ops",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]
__all__ += exported.__all__


def __getattr__(name: str) -> Any:
    """Imports Keras when it is asked for what needs it."""
    if name == "SyncBatchNormalization":
        from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
