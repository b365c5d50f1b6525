"""What is sent from one rank to all: variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle
import numpy
import tensorflow as tf

import corro
from corro.tensorflow.ops import unconverted
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.mpi_ops import allgather, broadcast, broadcast_


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
    """Returns the object of a rank of the world, sent with cloudpickle; others may give None.

    Args:
        obj: any object that can be sent.
        root_rank: whose it is.
        session: runs what is put into a graph; not needed where tensors are eager.
        name: of the operation.
        process_set: the ranks that take part.
    """
    name = name or type(obj).__name__
    own = _packed(obj) if corro.rank() == root_rank else numpy.empty(0, numpy.uint8)
    run = _runner(session)
    size = run(lambda: broadcast([len(own)], root_rank, f"{name}.size", False, process_set))
    data = own if len(own) else numpy.zeros(int(size[0]), numpy.uint8)
    return _unpacked(run(lambda: broadcast(data, root_rank, name, False, process_set)))


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
    name = name or type(obj).__name__
    own = _packed(obj)
    run = _runner(session)
    sizes = run(lambda: allgather([len(own)], f"{name}.sizes", False, process_set))
    data = run(lambda: allgather(own, name, False, process_set))
    ends = numpy.cumsum(sizes)
    return [_unpacked(data[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def _packed(obj: Any) -> Any:
    return numpy.frombuffer(cloudpickle.dumps(obj), numpy.uint8)


def _unpacked(data: Any) -> Any:
    return cloudpickle.loads(numpy.asarray(data).tobytes())


def _runner(session: Any) -> Callable[[Callable[[], Any]], Any]:
    """Returns what makes a tensor's content: now, or in a session."""
    if tf.executing_eagerly():
        return lambda make: make().numpy()
    used = session or tf.compat.v1.keras.backend.get_session()
    return lambda make: used.run(make())
