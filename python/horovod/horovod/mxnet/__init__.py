"""Horovod for MXNet, on corro.

import horovod.mxnet as hvd

hvd.init()
hvd.broadcast_parameters(net.collect_params())
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1 * hvd.size()})
"""

from horovod.mxnet import _required as _required  # isort: skip  # It says what is wrong with MXNet.
from horovod.common import exported
from horovod.common.exported import *  # noqa: F403
from horovod.common.objects import allgather_object, broadcast_object
from horovod.mxnet import mpi_ops
from horovod.mxnet.compression import Compression
from horovod.mxnet.mpi_ops import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allreduce,
    grouped_allreduce_,
)
from horovod.mxnet.parameters import broadcast_parameters
from horovod.mxnet.training import DistributedOptimizer, DistributedTrainer

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
    "grouped_allreduce",
    "grouped_allreduce_",
    "mpi_ops",
]
__all__ += exported.__all__
