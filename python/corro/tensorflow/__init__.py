"""corro's verbs on TensorFlow's tensors, eager and in graphs.

    import tensorflow as tf, corro, corro.tensorflow

    corro.init()
    mean = corro.tensorflow.allreduce(tf.range(4.0))

Works with TensorFlow 2.12 and later, on tensors in CPU memory; nothing here is compiled against
TensorFlow. The verbs are ops: what differs between the ranks is one of tf.errors, on every rank
(FailedPreconditionError), as is what this rank alone has wrong (InvalidArgumentError). In a graph
they can be differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corro import Adasum, Average, Group, Max, Min, Product, ReduceOp, Sum, world
from corro.errors import InvalidArgumentError
from corro.tensorflow import _required as _required
from corro.tensorflow import ops
from corro.tensorflow.ops import unconverted

__all__ = [
    "Adasum",
    "Average",
    "Group",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allreduce",
    "broadcast",
    "grouped_allreduce",
]


@unconverted
def allreduce(
    tensor: Any,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> Any:
    """Returns the tensor, reduced over all ranks; the average by default.

    Args:
        tensor: a tensor, a variable or what tf.convert_to_tensor takes; same shape and dtype on
            every rank.
        op: the reduction; averages of integers round toward zero.
        name: the op's. In a graph it says which tensor this is, and ranks may have reduced others
            before; without one TensorFlow's own name does.
        prescale_factor: each rank's tensor is multiplied by it first.
        postscale_factor: the result is multiplied by it.
        group: the ranks that take part; the world if not given.
    """
    return grouped_allreduce(
        [tensor],
        op,
        name,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        group=group,
    )[0]


@unconverted
def grouped_allreduce(
    tensors: Sequence[Any],
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> list[Any]:
    """Returns several tensors, reduced as one unit; otherwise as allreduce()."""
    if not tensors:
        raise InvalidArgumentError("grouped_allreduce: no arrays given")
    return ops.reduce(
        tensors,
        op,
        (group or world()).number,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
    )


@unconverted
def broadcast(
    tensor: Any, root: int = 0, name: str | None = None, *, group: Group | None = None
) -> Any:
    """Returns the tensor of `root`, a rank of the world; otherwise as allreduce()."""
    group = group or world()
    return ops.send([tensor], group.index_of(root), group.number, name=name)[0]
