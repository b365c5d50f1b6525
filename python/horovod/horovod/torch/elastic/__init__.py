"""Elastic training of Horovod's scripts: corro run -np 3 --min-np 2 python train.py

state = hvd.elastic.TorchState(model, optimizer, batch=0, epoch=0)

@hvd.elastic.run
def train(state):
    ...
    state.commit()

train(state)
"""

from collections.abc import Callable
from typing import Any

from horovod.common import basics
from horovod.common.elastic import ObjectState, State, run_fn
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a training function go on when ranks come or go: a decorator.

    Its first argument is a state. When ranks come or go, that goes back to its last commit(), all
    ranks take rank 0's, and the function is called again.
    """
    return run_fn(func, basics.enter_epoch)
