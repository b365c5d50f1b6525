"""Collectives on values: numbers, arrays and tensors, outside of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod._keras.chosen import BACK_END
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_op import Average, reduction_of


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Any = None,
    compression: Any = BACK_END.compression.none,
) -> Any:
    """Returns what the values of all ranks are together, as a tensor: their average by default.

    Args:
        value: of the same shape and dtype on every rank.
        name: of the operation.
        average: as older scripts say `op`: True for hvd.Average, False for hvd.Sum.
        prescale_factor: each is multiplied by it first.
        postscale_factor: the result is multiplied by it.
        op: the reduction.
        compression: what the values travel as.
    """
    factors = (prescale_factor, postscale_factor)
    reduction = reduction_of(op, average)
    return BACK_END.allreduce(BACK_END.tensor(value), name, reduction, factors, compression)


def allgather(value: Any, name: str | None = None) -> Any:
    """Returns all ranks' rows, whose number may differ, as a tensor."""
    return BACK_END.allgather(BACK_END.tensor(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Returns the value of a rank, as a tensor; that of others has its shape and dtype."""
    sent = BACK_END.broadcast([BACK_END.tensor(value)], root_rank, name, global_process_set)
    return sent[0]


def reducescatter(value: Any, name: str | None = None, op: Any = Average) -> Any:
    """Returns this rank's rows of what the values of all ranks are together, as a tensor."""
    return BACK_END.reducescatter(BACK_END.tensor(value), name, op)


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Gives variables of Keras the values of a rank.

    Args:
        variables: of the same shapes and dtypes, in the same order, on every rank.
        root_rank: whose values.
        process_set: the ranks that take part.
    """
    if not variables:
        return
    tensors = [BACK_END.tensor(variable) for variable in variables]
    sent = BACK_END.broadcast(tensors, root_rank, None, process_set)
    for variable, value in zip(variables, sent, strict=True):
        variable.assign(value)


def broadcast_global_variables(root_rank: int) -> Any:
    """Gives all variables of TensorFlow's default graph the values of a rank.

    Raises:
        RuntimeError: there is no graph: variables that are not in one are in no collection.
    """
    return BACK_END.broadcast_global_variables(root_rank)
