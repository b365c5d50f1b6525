"""The ops of libcorro_tensorflow.so, as Python functions, and their gradients.

In a graph an op's name says which operation of other ranks it belongs to; TensorFlow makes names
different within a graph, the same way on every rank that builds the same one. Eager ops, which run
one after another, have the name of their kind.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from ctypes import CDLL, RTLD_GLOBAL
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf

import corro
from corro import ReduceOp, Sum

Function = TypeVar("Function", bound=Callable[..., Any])

# The plug-in finds TensorFlow's C API there.
_framework = CDLL(str(Path(tf.sysconfig.get_lib()) / "libtensorflow_framework.so.2"), RTLD_GLOBAL)
_library = tf.load_op_library(str(Path(corro.__file__).parent / "libcorro_tensorflow.so"))

# What AutoGraph is not to rewrite when a tf.function calls it: it does not know all of Python.
unconverted: Callable[[Function], Function] = tf.autograph.experimental.do_not_convert

# Whether an op leaves its thread to others while it is on its way. In TensorFlow 2.12 it does not:
# those of one step are better one op.
leave_their_threads = hasattr(_framework, "TF_NewAsyncKernelBuilder")


def _need_no_order() -> None:
    """Lets a tf.function start collectives as soon as their tensors are there.

    They are stateful ops, which it runs one after another, in the order of the program; but not
    TensorFlow's own collectives, which stand in a list. Nothing else has that effect, and what is
    not in the list is as right. Ops that keep their threads do need the order: with all threads
    taken by some on one rank, and by others on the next, none would end.
    """
    with suppress(ImportError, AttributeError):
        deps: Any = import_module("tensorflow.python.framework.auto_control_deps")
        deps.ASYNC_STATEFUL_OPS = frozenset(deps.ASYNC_STATEFUL_OPS) | {
            "CorroAllgather",
            "CorroAllreduce",
            "CorroAlltoall",
            "CorroBroadcast",
            "CorroReducescatter",
        }


if leave_their_threads:
    _need_no_order()
else:
    # A session runs its collectives in no order: with all threads of a rank taken by some, and by
    # others on the next, none would end. If nothing is said there are as many as processors.
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "128")


def _loop_bodies() -> type[Any]:
    """Returns the class of graphs that run again before they have ended; of all that may be one."""
    with suppress(ImportError, AttributeError):
        graphs: Any = import_module("tensorflow.python.ops.control_flow_v2_func_graphs")
        found: type[Any] = graphs.WhileBodyFuncGraph
        return found
    return tf.Graph  # type: ignore[no-any-return]


_LOOP_BODIES = _loop_bodies()


def _collective(verb: str) -> Callable[..., Any]:
    """Returns what makes its op. In a loop that is the one that waits for the run before it.

    TensorFlow begins a run of the body before the last one has ended, in any order, and an op has
    one name in all of them. In loops of tf.compat.v1 nothing makes a run wait: there they have
    numbers.
    """
    graph = tf.compat.v1.get_default_graph()
    in_order = isinstance(graph, _LOOP_BODIES)
    made: Callable[..., Any] = getattr(_library, f"corro_{verb}" + "_in_order" * in_order)
    return partial(made, numbers_runs=_is_in_loop_of_v1(graph))


def _is_in_loop_of_v1(graph: Any) -> bool:
    context = graph._get_control_flow_context()
    while context is not None:
        if context.IsWhileContext():
            return True
        context = context.outer_context
    return False


def _refuse_vectorized() -> None:
    """Has tf.vectorized_map() and its kin refuse the ops, instead of running them in any order."""

    def refuse(given: Any) -> None:
        verb = given.op_type.removeprefix("Corro").removesuffix("InOrder").lower()
        raise NotImplementedError(
            f"{verb}: no collective can be in tf.vectorized_map() or behind a jacobian(), whose"
            " runs have no order: call it once, outside, on the stacked tensor, or use tf.map_fn()"
            " or jacobian(..., experimental_use_pfor=False)"
        )

    with suppress(ImportError, AttributeError):
        pfor: Any = import_module("tensorflow.python.ops.parallel_for.pfor")
        for verb in ("Allgather", "Allreduce", "Alltoall", "Broadcast", "Reducescatter"):
            pfor.RegisterPFor(f"Corro{verb}")(refuse)
            pfor.RegisterPFor(f"Corro{verb}InOrder")(refuse)


_refuse_vectorized()


# What the engine has.
_DTYPES = frozenset(
    {
        *(tf.bool, tf.uint8, tf.int8, tf.uint16, tf.int16, tf.uint32, tf.int32, tf.uint64),
        *(tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64),
    }
)


def tensors_for(verb: str, given: Sequence[Any]) -> list[Any]:
    """Returns what is given as tensors; TypeError, which names the verb, for what no verb takes."""
    tensors = []
    for one in given:
        if isinstance(one, (tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)):
            raise TypeError(
                f"{verb}: a {type(one).__name__} is no tensor; give the tensors that it has"
            )
        tensor = tf.convert_to_tensor(one)
        if tensor.dtype.base_dtype not in _DTYPES:
            raise TypeError(
                f"{verb}: a tensor of dtype {tensor.dtype.name} is given; numbers and bools alone"
                " can be sent"
            )
        tensors.append(tensor)
    return tensors


def _placed(verb: str) -> AbstractContextManager[Any]:
    """An op is made in here, on the CPU: other devices give it their tensors, and take them.

    In a graph that is said: sessions refuse an op where it has no kernel. Eager ones move.
    """
    if tf.executing_eagerly():
        return _ANYWHERE
    refuse_xla(verb)
    return tf.device("CPU:0")  # type: ignore[no-any-return]


_ANYWHERE: AbstractContextManager[Any] = nullcontext()


def refuse_xla(verb: str) -> None:
    """Raises NotImplementedError in a function that XLA is to compile: it has none of the ops.

    XLA itself says so in many lines, once for each function that calls the one with the op.
    """
    if tf.__internal__.get_enclosing_xla_context() is not None:
        raise NotImplementedError(
            f"{verb}: no op of corro can be in a tf.function with jit_compile=True, which XLA"
            " compiles; leave jit_compile to functions without such ops"
        )


@unconverted
def reduce(
    tensors: Sequence[Any],
    op: ReduceOp,
    group: int,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divides_by_size: bool = False,
    name: str | None = None,
    ignore_name_scope: bool = False,
) -> list[Any]:
    """Returns the tensors, reduced over the ranks of a group as one unit.

    Args:
        tensors: at least one; any numbers and bools, of any shapes, the same on every rank.
        op: the reduction of each.
        group: the group's number.
        prescale_factor: each contribution is multiplied by it first.
        postscale_factor: the result is multiplied by it.
        divides_by_size: the result is divided by the number of ranks, also if some have joined.
        name: of the op; behind a number, if others of the graph have it, too.
        ignore_name_scope: the name scopes in which the op is made say nothing.
    """
    tensors = tensors_for("allreduce", tensors)
    with _placed("allreduce"):
        reduced: list[Any] = _collective("allreduce")(
            tensors,
            reduce_op=int(op),
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set_id=group,
            divides_by_size=divides_by_size,
            ignore_name_scope=ignore_name_scope,
            name=name,
        )
    return reduced


@unconverted
def send(
    tensors: Sequence[Any],
    root: int,
    group: int,
    *,
    name: str | None = None,
    ignore_name_scope: bool = False,
) -> list[Any]:
    """Returns the tensors of the root, which is a rank of the group; otherwise as reduce()."""
    tensors = tensors_for("broadcast", tensors)
    with _placed("broadcast"):
        sent: list[Any] = _collective("broadcast")(
            tensors,
            root_rank=root,
            process_set_id=group,
            ignore_name_scope=ignore_name_scope,
            name=name,
        )
    return sent


@unconverted
def scatter_reduced(
    tensors: Sequence[Any],
    op: ReduceOp,
    group: int,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    divides_by_size: bool = False,
    name: str | None = None,
    ignore_name_scope: bool = False,
) -> list[Any]:
    """Returns this rank's rows of the reduced tensors; the first ranks get one more if need be.

    Otherwise as reduce().
    """
    tensors = tensors_for("reducescatter", tensors)
    with _placed("reducescatter"):
        reduced = _collective("reducescatter")(
            tensors,
            reduce_op=int(op),
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set_id=group,
            divides_by_size=divides_by_size,
            ignore_name_scope=ignore_name_scope,
            name=name,
        )
    return _with_rows(reduced, tensors)


@unconverted
def gather(
    tensors: Sequence[Any],
    group: int,
    *,
    name: str | None = None,
    ignore_name_scope: bool = False,
) -> list[Any]:
    """Returns all ranks' rows of each tensor; how many there are may differ by rank."""
    tensors = tensors_for("allgather", tensors)
    with _placed("allgather"):
        gathered = _collective("allgather")(
            tensors, process_set_id=group, ignore_name_scope=ignore_name_scope, name=name
        )
    return _with_rows(gathered, tensors)


@unconverted
def exchange(
    tensor: Any,
    splits: Any,
    group: int,
    *,
    name: str | None = None,
    ignore_name_scope: bool = False,
) -> tuple[Any, Any]:
    """Sends splits[r] rows to rank r; returns what came, and how many rows from each, as int32.

    Without splits, an empty int32 tensor, each gets as many.
    """
    tensor = tensors_for("alltoall", [tensor])[0]
    with _placed("alltoall"):
        received, received_splits = _collective("alltoall")(
            tensor, splits, process_set_id=group, ignore_name_scope=ignore_name_scope, name=name
        )
    return _with_rows([received], [tensor])[0], received_splits


def _with_rows(outputs: list[Any], inputs: Sequence[Any]) -> list[Any]:
    """Says what is known of the outputs' shapes in a graph: all but the first dim."""
    if not tf.executing_eagerly():
        for output, given in zip(outputs, inputs, strict=True):
            shape = tf.TensorShape(given.shape)
            if shape.rank:
                output.set_shape([None, *shape[1:]])
    return outputs


class Place(enum.IntEnum):
    """What place() tells; the numbers are the op's."""

    RANK = 0
    SIZE = 1
    LOCAL_RANK = 2
    LOCAL_SIZE = 3
    INCLUDED = 4


@unconverted
def place(what: Place, group: int, name: str | None = None) -> Any:
    """Returns it as an int32 scalar that is asked for when it runs, in whatever epoch."""
    with _placed(what.name.lower()):
        return _library.corro_place(what=int(what), process_set_id=group, name=name)


# -- gradients: as Horovod defines them -----------------------------------------------------------


@tf.RegisterGradient("CorroAllreduceInOrder")  # type: ignore[untyped-decorator]
@tf.RegisterGradient("CorroAllreduce")  # type: ignore[untyped-decorator]
def _gradient_of_reduce(op: Any, *gradients: Any) -> list[Any]:
    """Of a sum, what all ranks' losses say of it: their gradients' sum, scaled the same way."""
    return reduce(
        gradients,
        ReduceOp(op.get_attr("reduce_op")),
        op.get_attr("process_set_id"),
        prescale_factor=op.get_attr("prescale_factor"),
        postscale_factor=op.get_attr("postscale_factor"),
        divides_by_size=op.get_attr("divides_by_size"),
        ignore_name_scope=op.get_attr("ignore_name_scope"),
    )


@tf.RegisterGradient("CorroBroadcastInOrder")  # type: ignore[untyped-decorator]
@tf.RegisterGradient("CorroBroadcast")  # type: ignore[untyped-decorator]
def _gradient_of_send(op: Any, *gradients: Any) -> list[Any]:
    """The average of all ranks' for the root, and nothing for the others."""
    group = op.get_attr("process_set_id")
    averaged = _averaged(gradients, op)
    is_root = tf.equal(place(Place.RANK, group), op.get_attr("root_rank"))
    return [tf.where(is_root, gradient, tf.zeros_like(gradient)) for gradient in averaged]


def _averaged(gradients: Sequence[Any], op: Any) -> list[Any]:
    return reduce(
        gradients,
        Sum,
        op.get_attr("process_set_id"),
        divides_by_size=True,
        ignore_name_scope=op.get_attr("ignore_name_scope"),
    )


@tf.RegisterGradient("CorroReducescatterInOrder")  # type: ignore[untyped-decorator]
@tf.RegisterGradient("CorroReducescatter")  # type: ignore[untyped-decorator]
def _gradient_of_scatter(op: Any, *gradients: Any) -> list[Any]:
    """All ranks' rows, as the sum of the losses of all ranks has them."""
    group = op.get_attr("process_set_id")
    gathered = gather(gradients, group, ignore_name_scope=op.get_attr("ignore_name_scope"))
    scale = op.get_attr("prescale_factor") * op.get_attr("postscale_factor")
    if op.get_attr("divides_by_size"):
        return [tf.cast(scale, one.dtype) * one for one in gathered]
    size = tf.cast(place(Place.SIZE, group), tf.float64) * scale
    return [tf.cast(size, one.dtype) * one for one in gathered]


@tf.RegisterGradient("CorroAllgatherInOrder")  # type: ignore[untyped-decorator]
@tf.RegisterGradient("CorroAllgather")  # type: ignore[untyped-decorator]
def _gradient_of_gather(op: Any, *gradients: Any) -> list[Any]:
    """This rank's rows of the average of all ranks'."""
    group = op.get_attr("process_set_id")
    scope = op.get_attr("ignore_name_scope")
    averaged = _averaged(gradients, op)
    rows = [tf.shape(given)[:1] for given in op.inputs]
    ends = [tf.cumsum(of_ranks) for of_ranks in gather(rows, group, ignore_name_scope=scope)]
    rank = place(Place.RANK, group)
    return [
        one[end[rank] - count[0] : end[rank]]
        for one, end, count in zip(averaged, ends, rows, strict=True)
    ]


@tf.RegisterGradient("CorroAlltoallInOrder")  # type: ignore[untyped-decorator]
@tf.RegisterGradient("CorroAlltoall")  # type: ignore[untyped-decorator]
def _gradient_of_exchange(op: Any, gradient: Any, _of_splits: Any) -> tuple[Any, None]:
    """Each row's gradient goes back to where the row has come from."""
    scope = op.get_attr("ignore_name_scope")
    back, _ = exchange(
        gradient, op.outputs[1], op.get_attr("process_set_id"), ignore_name_scope=scope
    )
    given = tf.shape(op.inputs[0])
    kept = given[:1] - tf.shape(back)[:1]  # Rows that went nowhere: no loss depends on them.
    zeros = tf.zeros(tf.concat([kept, given[1:]], 0), back.dtype)
    return tf.concat([back, zeros], 0), None


tf.no_gradient("CorroPlace")
