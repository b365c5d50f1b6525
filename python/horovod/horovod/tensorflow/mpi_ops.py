"""Horovod's collectives on TensorFlow's tensors: each is one of corro.tensorflow's ops."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

import corro
from corro.errors import CorroError
from corro.tensorflow import ops
from corro.tensorflow.causes import remember
from corro.tensorflow.ops import Place, unconverted
from horovod.common import basics
from horovod.common import basics as _basics  # noqa: F401  # Horovod's name.
from horovod.common.exceptions import HorovodInternalError, raised_as_horovods
from horovod.common.exported import *  # noqa: F403  # Scripts look for them here, too.
from horovod.common.operations import reduction_of_reducescatter
from horovod.common.process_sets import (
    ProcessSet,
    global_process_set,
    member_group,
    ranks_by_number,
    registered,
)
from horovod.common.reduce_op import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    reduction_of,
    without_average,
)
from horovod.tensorflow.compression import Compression

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_broadcast",
    "grouped_reducescatter",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]


@unconverted
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Returns the tensor, reduced over all ranks; differentiable."""
    return grouped_allreduce(
        [tensor],
        average,
        device_dense,
        device_sparse,
        compression,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        ignore_name_scope,
        name,
    )[0]


@unconverted
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Returns several tensors, reduced over all ranks as one unit; differentiable."""
    reduction = reduction_of(op, average)
    tensors = list(tensors)
    dense = [i for i, one in enumerate(tensors) if not isinstance(one, tf.IndexedSlices)]
    sparse = [i for i, one in enumerate(tensors) if isinstance(one, tf.IndexedSlices)]
    if sparse:
        _check_sparse(reduction, prescale_factor, postscale_factor)
    results: dict[int, Any] = {}
    with tf.device(device_dense):
        reduced = _reduced(
            ops.reduce,
            "Allreduce",
            [tensors[i] for i in dense],
            compression,
            reduction,
            prescale_factor,
            postscale_factor,
            process_set,
            ignore_name_scope,
            name,
        )
        results.update(zip(dense, reduced, strict=True))
    with tf.device(device_sparse):
        for i in sparse:
            results[i] = _reduced_slices(tensors[i], reduction, name, process_set)
    return [results[i] for i in range(len(tensors))]


def _reduced(
    reduce: Callable[..., list[Any]],
    kind: str,
    tensors: Sequence[Any],
    compression: Any,
    reduction: Any,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    ignore_name_scope: bool,
    name: str | None,
) -> list[Any]:
    """Returns what ops.reduce(), or another one of its form, makes of the compressed tensors."""
    given = ops.tensors_for(kind.lower(), tensors)
    if not given:
        return []
    packed = [compression.compress(one) for one in given]
    engines, divides = without_average(reduction)
    reduced = reduce(
        [one for one, _ in packed],
        engines,
        _number_of(process_set, kind.lower()),
        prescale_factor=prescale,
        postscale_factor=postscale,
        divides_by_size=divides,
        name=_name_of(f"Horovod{kind}", name, given),
        ignore_name_scope=ignore_name_scope,
    )
    return [
        compression.decompress(one, context)
        for one, (_, context) in zip(reduced, packed, strict=True)
    ]


def _check_sparse(reduction: Any, prescale: float, postscale: float) -> None:
    if reduction not in (Average, Sum):
        raise NotImplementedError(
            "allreduce: tf.IndexedSlices can be added up and averaged alone; "
            "sparse_as_dense=True makes them tensors"
        )
    if prescale != 1.0 or postscale != 1.0:
        raise NotImplementedError("allreduce: tf.IndexedSlices take no factors")


def _reduced_slices(slices: Any, reduction: Any, name: str | None, process_set: ProcessSet) -> Any:
    """Returns the slices of all ranks: who applies them adds them up."""
    values, indices = ops.gather(
        [slices.values, slices.indices],
        _number_of(process_set, "allreduce"),
        name=_name_of("HorovodAllgather", name, [slices.values]),
    )
    if reduction is Average:
        values /= tf.cast(size_op(process_set.process_set_id or 0), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


@unconverted
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns all ranks' rows, whose number may differ; differentiable."""
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


@unconverted
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Returns all ranks' rows of each tensor, gathered as one unit; differentiable."""
    given = ops.tensors_for("allgather", tensors)
    if not given:
        return []
    return ops.gather(
        given,
        _number_of(process_set, "allgather"),
        name=_name_of("HorovodAllgather", name, given),
        ignore_name_scope=ignore_name_scope,
    )


@unconverted
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends splits[r] rows to rank r and returns what came; with `splits` also how much from each.

    Rows behind those for the last rank stay here. Differentiable.
    """
    given = ops.tensors_for("alltoall", [tensor])[0]
    parts = tf.convert_to_tensor([] if splits is None else splits, dtype=tf.int32)
    received, received_splits = ops.exchange(
        given,
        parts,
        _number_of(process_set, "alltoall"),
        name=_name_of("HorovodAlltoall", name, [given]),
        ignore_name_scope=ignore_name_scope,
    )
    return received if splits is None else (received, received_splits)


@unconverted
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Any = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Returns this rank's rows of the reduced tensor; differentiable."""
    return grouped_reducescatter(
        [tensor],
        device_dense,
        compression,
        op,
        name,
        process_set,
        ignore_name_scope,
        prescale_factor,
        postscale_factor,
    )[0]


@unconverted
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Any = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Returns this rank's rows of each, reduced as one unit; differentiable."""
    with tf.device(device_dense):
        return _reduced(
            ops.scatter_reduced,
            "Reducescatter",
            tensors,
            compression,
            reduction_of_reducescatter(op),
            prescale_factor,
            postscale_factor,
            process_set,
            ignore_name_scope,
            name,
        )


@unconverted
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the tensor of a rank of the world; differentiable."""
    return grouped_broadcast([tensor], root_rank, name, ignore_name_scope, process_set)[0]


@unconverted
def grouped_broadcast(
    tensors: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Returns several tensors of a rank of the world, fetched as one unit; differentiable."""
    number = _number_of(process_set, "broadcast")
    given = ops.tensors_for("broadcast", tensors)
    if not given:
        return []
    return ops.send(
        given,
        _members(process_set, "broadcast").index_of(root_rank),
        number,
        name=_name_of("HorovodBroadcast", name, given),
        ignore_name_scope=ignore_name_scope,
    )


@unconverted
def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Gives variables the values of a rank of the world, and returns them."""
    sent = grouped_broadcast(variables, root_rank, name, False, process_set)
    return [variable.assign(value) for variable, value in zip(variables, sent, strict=True)]


@unconverted
def join() -> Any:
    """Blocks until every rank has called it; returns the rank that was the last, as int32.

    Others go on meanwhile with allreduces, in which this rank counts as zeros for sums and
    averages, and does not count for the other reductions.
    """
    ops.refuse_xla("join")
    if tf.executing_eagerly():
        return tf.constant(basics.join(), tf.int32)
    last = tf.py_function(_in_graph(basics.join), [], tf.int32)
    last.set_shape([])
    return last


@unconverted
def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Blocks until every rank of the set has called it; in a graph, returns the op that does."""

    def wait() -> None:
        with raised_as_horovods():
            corro.barrier(member_group(process_set, "barrier"), name="HorovodBarrier")

    ops.refuse_xla("barrier")
    return wait() if tf.executing_eagerly() else tf.py_function(_in_graph(wait), [], [])


def _in_graph(function: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a function that py_function() calls, and elastic training then knows its errors."""

    def call() -> Any:
        try:
            return function()
        except HorovodInternalError as error:
            if isinstance(error.__context__, CorroError):
                remember(error.__context__)
            raise

    return call


def _number_of(process_set: ProcessSet, operation: str) -> int:
    _members(process_set, operation)  # Says what is wrong with it.
    assert process_set.process_set_id is not None
    return process_set.process_set_id


def _members(process_set: ProcessSet, operation: str) -> corro.Group:
    """As member_group(), but who is not in the set gets the error that an op would give."""
    try:
        return member_group(process_set, operation)
    except ValueError as error:
        if process_set.included() is not False:
            raise
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from None


def _name_of(kind: str, name: str | None, tensors: Sequence[Any]) -> str | None:
    """Returns the op's name: in a graph the user's, or one that says what is reduced."""
    if name is not None or not tensors or tf.executing_eagerly():
        return name
    ends = [tensors[0]] if len(tensors) == 1 else [tensors[0], tensors[-1]]
    return re.sub(r"[^a-zA-Z0-9_]", "_", "_".join([kind, *map(_known_as, ends)]))


def _known_as(tensor: Any) -> str:
    """Returns a tensor's name in its graph, as all ranks know it.

    One that a tf.function has captured has a number there that counts what its process has done.
    """
    return re.sub(r"(^|/)\d+(_\d+)?:", r"\1captured:", tensor.name)


def _place(what: Place, process_set_id: int, name: str | None) -> Any:
    if tf.executing_eagerly():
        basics.world()  # Raises ValueError before init(); a graph may be made then.
    return ops.place(what, process_set_id, name)


@unconverted
def rank_op(name: str | None = None) -> Any:
    """Returns this process's rank when it runs, as an int32 tensor."""
    return _place(Place.RANK, 0, name)


@unconverted
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns the set's number of ranks when it runs, as an int32 tensor."""
    known = registered(process_set_id)
    if known is None or known.included() is not False:
        return _place(Place.SIZE, process_set_id, name)
    # The engine has no group for who is not in it.
    count = tf.py_function(lambda: len(ranks_by_number()[process_set_id]), [], tf.int32, name)
    count.set_shape([])
    return count


@unconverted
def local_rank_op(name: str | None = None) -> Any:
    """Returns this process's rank on its host when it runs, as an int32 tensor."""
    return _place(Place.LOCAL_RANK, 0, name)


@unconverted
def local_size_op(name: str | None = None) -> Any:
    """Returns the number of ranks on this host when it runs, as an int32 tensor."""
    return _place(Place.LOCAL_SIZE, 0, name)


@unconverted
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns 1 if this rank is in the set when it runs, else 0, as an int32 tensor."""
    return _place(Place.INCLUDED, process_set_id, name)
