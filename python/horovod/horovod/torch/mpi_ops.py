"""Horovod's collectives on torch tensors: each is one call into corro.torch.

An allreduce is what training is made of: one of tensors that the engine can use as they lie is one
call of the engine, which claims the name, too. All others are described to corro.torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

import corro
import corro.torch as verbs
from corro._native import ALLREDUCE
from corro.errors import CorroError
from corro.torch.differentiable import scaled_allgather, scaled_broadcast, scaled_reducescatter
from corro.torch.verbs import ARRAYS
from horovod.common import basics
from horovod.common import basics as _basics  # noqa: F401  # Horovod's name.
from horovod.common.exceptions import HorovodInternalError, raise_as_horovods
from horovod.common.exported import *  # noqa: F403  # Scripts look for them here, too.
from horovod.common.handles import Started, handles, numbers, poll, synchronize
from horovod.common.operations import (
    Finish,
    Reduction,
    numbered,
    own_name,
    reduction_of_reducescatter,
    running,
    start,
)
from horovod.common.process_sets import ProcessSet, global_process_set, member_group
from horovod.common.reduce_op import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    corros,
    reduction_of,
)
from horovod.torch.compression import Compression

if TYPE_CHECKING:
    from torch import Tensor

    from corro import Group
    from horovod.torch.compression import Codec

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
    "synchronize",
]

Name = str | None


# -- arguments ------------------------------------------------------------------------------------


def _checked(tensor: Any) -> Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"a torch tensor is needed, not a {type(tensor).__name__}")
    if not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")
    return tensor


def _data(tensor: Any) -> Tensor:
    return _checked(tensor).detach()


def _into(out: Any) -> Finish:
    """Makes an operation's result the user's own tensors, if they are what it writes to."""
    return lambda result: result if out is None else out


# -- allreduce ------------------------------------------------------------------------------------


def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: Name = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts to reduce the tensor over all ranks; synchronize() of the handle returns a new one."""
    reduction = reduction_of(op, average)
    return _start_allreduce(
        tensor, None, name, reduction, prescale_factor, postscale_factor, process_set
    )


def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: Name = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts to reduce the tensor over all ranks, in place."""
    reduction = reduction_of(op, average)
    return _start_allreduce(
        tensor, tensor, name, reduction, prescale_factor, postscale_factor, process_set
    )


def _start_allreduce(
    tensor: Tensor,
    out: Tensor | None,
    name: Name,
    op: ReduceOp | corro.ReduceOp,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> int:
    native = process_set.native or member_group(process_set, "allreduce").native
    if op is Average:  # As Reduction, which takes longer.
        op, postscale = Sum, postscale / len(process_set.ranks or [0])
    reduction = corros(op)
    if name is None:
        _checked(tensor)  # What is refused does not count.
    own = f"allreduce.{name}" if name is not None else own_name("allreduce", None, process_set)
    try:
        started: Started | None = native.start_named(
            ARRAYS, ALLREDUCE, tensor, out, reduction, 0, prescale, postscale, own
        )
    except CorroError as error:
        raise_as_horovods(error)
    if started is None:
        return _start_described(
            _data(tensor), out, own, (reduction, prescale, postscale), process_set
        )
    number = next(numbers)  # As handle_of(), which takes longer.
    handles[number] = started
    return number


def _start_described(
    data: Tensor,
    out: Tensor | None,
    own: str,
    reduction: tuple[corro.ReduceOp, float, float],
    process_set: ProcessSet,
) -> int:
    """Starts to reduce what has to be copied first."""
    op, prescale, postscale = reduction

    def begin(group: Group) -> corro.torch.Handle[Tensor]:
        return verbs.allreduce_async(
            data,
            op,
            own,
            prescale_factor=prescale,
            postscale_factor=postscale,
            out=None if out is None else data,
            group=group,
        )

    return start("allreduce", [own], process_set, begin, _into(out))


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: Name = None,
    compression: Codec = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Returns the tensor reduced over all ranks; differentiable."""
    reduction = Reduction(reduction_of(op, average), prescale_factor, postscale_factor, process_set)
    _checked(tensor)
    own = own_name("allreduce", name, process_set)
    if compression is Compression.none and not tensor.requires_grad:
        done = _run_allreduce(tensor, None, own, reduction, process_set)
        if done is not None:
            return done
    with running("allreduce", [own], process_set) as group:
        return verbs.allreduce(
            tensor, name=own, group=group, compression=compression, **reduction.arguments
        )


def _run_allreduce(
    tensor: Tensor, out: Tensor | None, own: str, reduction: Reduction, process_set: ProcessSet
) -> Tensor | None:
    """Reduces a tensor that the engine can use as it lies; None if it cannot."""
    native = process_set.native or member_group(process_set, "allreduce").native
    try:
        done: Tensor | None = native.run_named(
            ARRAYS,
            ALLREDUCE,
            tensor,
            out,
            reduction.op,
            0,
            reduction.prescale,
            reduction.postscale,
            own,
        )
    except CorroError as error:
        raise_as_horovods(error)
    return done


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: Name = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Reduces the tensor over all ranks, in place, and returns it."""
    reduction = Reduction(reduction_of(op, average), prescale_factor, postscale_factor, process_set)
    data = _data(tensor)
    own = own_name("allreduce", name, process_set)
    if _run_allreduce(data, data, own, reduction, process_set) is None:
        with running("allreduce", [own], process_set) as group:
            verbs.allreduce(data, name=own, out=data, group=group, **reduction.arguments)
    return tensor


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: Name = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts to reduce several tensors as one unit."""
    reduction = Reduction(reduction_of(op, average), prescale_factor, postscale_factor, process_set)
    return _start_grouped(tensors, name, reduction, process_set, None)


def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: Name = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts to reduce several tensors as one unit, in place."""
    reduction = Reduction(reduction_of(op, average), prescale_factor, postscale_factor, process_set)
    return _start_grouped(tensors, name, reduction, process_set, tensors)


def _start_grouped(
    tensors: Sequence[Tensor],
    name: Name,
    reduction: Reduction,
    process_set: ProcessSet,
    outs: Sequence[Tensor] | None,
) -> int:
    data = [_data(tensor) for tensor in tensors]
    own = own_name("grouped_allreduce", name, process_set)

    def begin(group: Group) -> corro.torch.Handle[list[Tensor]]:
        targets = None if outs is None else data
        return verbs.grouped_allreduce_async(
            data, name=own, outs=targets, group=group, **reduction.arguments
        )

    return start("allreduce", numbered(own, len(data)), process_set, begin, _into(outs))


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: Name = None,
    compression: Codec = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Returns the tensors, reduced over all ranks as one unit; differentiable."""
    reduction = Reduction(reduction_of(op, average), prescale_factor, postscale_factor, process_set)
    own = own_name("grouped_allreduce", name, process_set)
    checked = [_checked(tensor) for tensor in tensors]
    with running("allreduce", numbered(own, len(checked)), process_set) as group:
        return verbs.grouped_allreduce(
            checked, name=own, group=group, compression=compression, **reduction.arguments
        )


def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: Name = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Sequence[Tensor]:
    """Reduces several tensors as one unit, in place, and returns them."""
    result: Sequence[Tensor] = synchronize(
        grouped_allreduce_async_(
            tensors, average, name, op, prescale_factor, postscale_factor, process_set
        )
    )
    return result


def sparse_allreduce_async(
    tensor: Tensor, name: str, op: Any, process_set: ProcessSet = global_process_set
) -> Callable[[], Tensor]:
    """Starts to add up sparse tensors; returns what waits for the sum or the average."""
    reduction = corros(reduction_of(op, None))
    own = own_name("allgather", name, process_set)
    started = start(
        "allgather",
        [f"{own}.indices", f"{own}.values"],
        process_set,
        lambda group: verbs.sparse_allreduce_async(tensor, reduction, own, group=group),
    )
    return lambda: synchronize(started)


# -- allgather ------------------------------------------------------------------------------------


def allgather_async(
    tensor: Tensor, name: Name = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts to gather all ranks' tensors along dim 0, which may differ between ranks."""
    own = own_name("allgather", name, process_set)
    [data] = _gatherable([tensor])
    return start(
        "allgather",
        [own],
        process_set,
        lambda group: verbs.allgather_async(data, own, group=group),
    )


def allgather(
    tensor: Tensor, name: Name = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Returns all ranks' tensors, joined along dim 0; differentiable."""
    return _run_allgather([tensor], [own_name("allgather", name, process_set)], process_set)[0]


def grouped_allgather_async(
    tensors: Sequence[Tensor], name: Name = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts to gather several tensors as one unit."""
    own = own_name("grouped_allgather", name, process_set)
    data = _gatherable(tensors)
    return start(
        "allgather",
        numbered(own, len(data)),
        process_set,
        lambda group: verbs.grouped_allgather_async(data, own, group=group),
    )


def grouped_allgather(
    tensors: Sequence[Tensor], name: Name = None, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    """Returns all ranks' tensors for each; differentiable."""
    names = numbered(own_name("grouped_allgather", name, process_set), len(tensors))
    return _run_allgather(tensors, names, process_set)


def _gatherable(tensors: Sequence[Tensor]) -> list[Tensor]:
    data = [_data(tensor) for tensor in tensors]
    if any(tensor.dim() == 0 for tensor in data):
        raise HorovodInternalError(
            "Process-set rank zero tried to ALLGATHER a rank-zero tensor. Reshape it to (1,)"
        )
    return data


def _run_allgather(
    tensors: Sequence[Tensor], names: list[str], process_set: ProcessSet
) -> list[Tensor]:
    if any(_checked(tensor).dim() == 0 for tensor in tensors):
        raise IndexError("allgather: a tensor without dimensions has no first one to be joined by")
    with running("allgather", names, process_set) as group:
        return scaled_allgather(tensors, names, group=group, scale=1.0 / group.size())


# -- broadcast ------------------------------------------------------------------------------------


def broadcast_async(
    tensor: Tensor,
    root_rank: int,
    name: Name = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts to fetch the tensor of a rank of the world."""
    return _start_broadcast(tensor, root_rank, name, process_set, None)


def broadcast_async_(
    tensor: Tensor,
    root_rank: int,
    name: Name = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts to fill the tensor with that of a rank of the world."""
    return _start_broadcast(tensor, root_rank, name, process_set, tensor)


def _start_broadcast(
    tensor: Tensor, root_rank: int, name: Name, process_set: ProcessSet, out: Tensor | None
) -> int:
    data = _data(tensor)
    own = own_name("broadcast", name, process_set)

    def begin(group: Group) -> corro.torch.Handle[Tensor]:
        target = None if out is None else data
        return verbs.broadcast_async(data, root_rank, own, out=target, group=group)

    return start("broadcast", [own], process_set, begin, _into(out))


def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: Name = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Returns the tensor of a rank of the world; differentiable."""
    own = own_name("broadcast", name, process_set)
    _checked(tensor)
    with running("broadcast", [own], process_set) as group:
        return scaled_broadcast(tensor, root_rank, own, group=group, scale=1.0 / group.size())


def broadcast_(
    tensor: Tensor,
    root_rank: int,
    name: Name = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Fills the tensor with that of a rank of the world, and returns it."""
    result: Tensor = synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return result


# -- alltoall -------------------------------------------------------------------------------------


def alltoall_async(
    tensor: Tensor,
    splits: Any = None,
    name: Name = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts to send rows to every rank; the result is what came, and how much from each."""
    rows = _rows_for(_checked(tensor), splits, process_set)
    data = tensor.detach()[: sum(rows)]
    own = own_name("alltoall", name, process_set)
    return start(
        "alltoall",
        [own],
        process_set,
        lambda group: verbs.alltoall_async(data, rows, own, group=group),
        lambda result: _with_tensor_of(splits, *result),
    )


def alltoall(
    tensor: Tensor,
    splits: Any = None,
    name: Name = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends splits[r] rows to rank r and returns what came; with `splits` also how much from each.

    Rows behind those for the last rank stay here. Differentiable.
    """
    rows = _rows_for(_checked(tensor), splits, process_set)
    own = own_name("alltoall", name, process_set)
    with running("alltoall", [own], process_set) as group:
        out, received = verbs.alltoall(tensor[: sum(rows)], rows, own, group=group)
    return out if splits is None else _with_tensor_of(splits, out, received)


def _with_tensor_of(splits: Any, out: Tensor, received: list[int]) -> tuple[Tensor, Tensor]:
    device = splits.device if isinstance(splits, torch.Tensor) else "cpu"
    return out, torch.tensor(received, dtype=torch.int32, device=device)


def _rows_for(tensor: Tensor, splits: Any, process_set: ProcessSet) -> list[int]:
    ranks = len(process_set.ranks or [0])
    rows = tensor.shape[0] if tensor.dim() else 0
    if splits is not None and not isinstance(splits, torch.Tensor):
        splits = torch.tensor(splits, dtype=torch.int32, device="cpu")
    if splits is None or splits.numel() == 0:
        if tensor.dim() == 0 or rows % ranks:
            raise ValueError(
                f"alltoall: {rows} rows cannot be divided evenly among {ranks} ranks; give splits"
            )
        return [rows // ranks] * ranks
    if splits.dim() != 1:
        raise ValueError("alltoall: expected splits of one dimension")
    if splits.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"alltoall: expected splits of int32, not {splits.dtype}")
    numbers = [int(n) for n in splits.tolist()]
    if len(numbers) != ranks or min(numbers) < 0 or sum(numbers) > rows:
        raise ValueError(
            f"alltoall: splits {numbers} have to be {ranks} numbers, and together at most {rows}"
        )
    return numbers


# -- reducescatter --------------------------------------------------------------------------------


def _scattering(op: Any, prescale: float, postscale: float, process_set: ProcessSet) -> Reduction:
    return Reduction(reduction_of_reducescatter(op), prescale, postscale, process_set)


def reducescatter_async(
    tensor: Tensor,
    name: Name = None,
    op: Any = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts to reduce the tensor; each rank gets a part of dim 0, the first ones a row more."""
    reduction = _scattering(op, prescale_factor, postscale_factor, process_set).arguments
    own = own_name("reducescatter", name, process_set)
    data = _data(tensor)
    return start(
        "reducescatter",
        [own],
        process_set,
        lambda group: verbs.reducescatter_async(data, name=own, group=group, **reduction),
    )


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: Name = None,
    op: Any = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts to reduce and scatter several tensors as one unit."""
    reduction = _scattering(op, prescale_factor, postscale_factor, process_set).arguments
    own = own_name("grouped_reducescatter", name, process_set)
    data = [_data(tensor) for tensor in tensors]
    return start(
        "reducescatter",
        numbered(own, len(data)),
        process_set,
        lambda group: verbs.grouped_reducescatter_async(data, name=own, group=group, **reduction),
    )


def reducescatter(
    tensor: Tensor,
    name: Name = None,
    compression: Codec = Compression.none,
    op: Any = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Returns this rank's part of dim 0 of the reduced tensor; differentiable."""
    reduction = _scattering(op, prescale_factor, postscale_factor, process_set)
    names = [own_name("reducescatter", name, process_set)]
    return _run_reducescatter([tensor], names, compression, reduction, process_set)[0]


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: Name = None,
    compression: Codec = Compression.none,
    op: Any = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """Returns this rank's part of each; differentiable."""
    reduction = _scattering(op, prescale_factor, postscale_factor, process_set)
    names = numbered(own_name("grouped_reducescatter", name, process_set), len(tensors))
    return _run_reducescatter(tensors, names, compression, reduction, process_set)


def _run_reducescatter(
    tensors: Sequence[Tensor],
    names: list[str],
    compression: Codec,
    reduction: Reduction,
    process_set: ProcessSet,
) -> list[Tensor]:
    checked = [_checked(tensor) for tensor in tensors]
    with running("reducescatter", names, process_set) as group:
        return scaled_reducescatter(
            checked,
            names=names,
            group=group,
            compression=compression,
            scale=float(group.size()),
            **reduction.arguments,
        )


# -- the rest -------------------------------------------------------------------------------------


def join(device: int = -1) -> int:
    """Says that this rank has no more batches; returns the rank that said so last.

    Others go on meanwhile with allreduces, in which this rank counts as zeros for sums and
    averages, and does not count for the other reductions. `device` is taken as Horovod takes it.
    """
    del device
    return basics.join()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns once every rank of the set has called it."""
    basics.world()
    own = own_name("barrier", None, process_set)
    with running("barrier", [own], process_set) as group:
        corro.barrier(group, name=own)
