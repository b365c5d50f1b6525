"""Elastic training of Keras's models: corro run -np 3 --min-np 2 python train.py

state = hvd.elastic.KerasState(model, batch=0, epoch=0)

@hvd.elastic.run
def train(state):
    model.fit(..., epochs=10 - state.epoch, callbacks=[
        hvd.elastic.CommitStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
    ])

train(state)
"""

from collections.abc import Callable
from typing import Any

from horovod._keras.chosen import BACK_END as _BACK_END
from horovod._keras.elastic import (
    CommitStateCallback,
    KerasState,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a training function go on when ranks come or go: a decorator.

    Its first argument is a state. When ranks come or go, that goes back to its last commit(), all
    ranks take rank 0's, and the function is called again.
    """
    return _BACK_END.elastic(func)
