"""What is sent from one rank to all: variables and objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from corro.tensorflow.ops import unconverted
from horovod.common import objects
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.mpi_ops import broadcast_


@unconverted
def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Gives variables the values of a rank; in a graph, returns the op that does.

    Args:
        variables: the same on every rank, in the same order.
        root_rank: a rank of the world.
        process_set: the ranks that take part.
        inplace: as Horovod takes it; nothing differs.
    """
    del inplace
    known = list(variables)
    if not known:
        return tf.no_op()
    return tf.group(*broadcast_(known, root_rank, None, process_set))


@unconverted
def broadcast_global_variables(root_rank: int) -> Any:
    """Returns the op that gives all variables of the default graph the values of a rank.

    Raises:
        RuntimeError: there is no graph: with eager execution variables are in no collection.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Please use"
            " hvd.broadcast_variables(<model/optimizer variables>) instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the object of a rank of the world on every rank; others may give None. Blocks.

    Args:
        obj: what cloudpickle can write.
        root_rank: whose it is.
        session: as Horovod takes it; none is needed: nothing is put into a graph.
        name: of the operation.
        process_set: the ranks that take part.

    Raises:
        InvalidArgumentError: on every rank, if the object cannot be pickled.
    """
    del session
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns broadcast_object() with these arguments, to be called with objects."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Returns the objects of all ranks, in order; otherwise as broadcast_object()."""
    del session
    return objects.allgather_object(obj, name, process_set)
