"""Horovod for Keras 3, on TensorFlow, torch or JAX, and for Keras 2, on corro.

import horovod.keras as hvd

hvd.init()
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * hvd.size()))
model.compile(optimizer, loss)
model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

from horovod._keras import framework as _framework  # noqa: F401  # First: says what is wrong.
from horovod._keras.chosen import BACK_END as _BACK_END
from horovod._keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from horovod._keras.saving import load_model
from horovod._keras.values import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    reducescatter,
)
from horovod.common import exported as _exported
from horovod.common.exported import *  # noqa: F403
from horovod.keras import callbacks, elastic

Compression = _BACK_END.compression

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
]
__all__ += _exported.__all__
