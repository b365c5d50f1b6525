"""The sum of sparse tensors: the ranks gather all indices and values.

sparse_allreduce() is a verb, whose result is not added up yet: whoever uses it does that, once.
torch.distributed's goes into the tensor that it was given, as one more operation of a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as c10d

from corro import _native
from corro._calls import Call, running, starting
from corro._context import Group, exchange, world_or
from corro._reduce_op import Average, ReduceOp, Sum
from corro.errors import InvalidArgumentError, MismatchError, UnimplementedError
from corro.torch.verbs import calls

if TYPE_CHECKING:
    from torch import Tensor

    from corro.torch.units import Unit


def _sparse_allreduce(
    x: Tensor, op: ReduceOp = Average, name: str | None = None, *, group: Group | None = None
) -> Call[Tensor]:
    """Sums or averages sparse tensors of layout sparse_coo: returns one with all ranks' values.

    An index that several ranks have is in it several times: coalesce() adds up. The ranks gather
    what they have, so a tensor of few values travels fast. Averages of integers are
    floating-point numbers.

    Args:
        x: the tensor; same shape, dtype and sparse dims on every rank.
        op: Sum or Average.
        name: as in allreduce; its parts have the names `name.indices`, `name.values`, `name.form`.
        group: the ranks that take part; the world if not given.
    """
    if op not in (Sum, Average):
        raise InvalidArgumentError(f"sparse tensors are summed up or averaged, not {op!r}")
    if not isinstance(x, torch.Tensor) or x.layout != torch.sparse_coo:
        what = f"of layout {x.layout}" if isinstance(x, torch.Tensor) else type(x).__name__
        raise InvalidArgumentError(f"a tensor of layout sparse_coo is needed, not one {what}")
    group = world_or(group)
    local, form = x.detach().coalesce(), [int(op), *x.shape]
    indices, values = local.indices().t().contiguous(), local.values().contiguous()
    parts = [indices, values, torch.tensor([form], device="cpu")]
    names = [name and f"{name}.{part}" for part in ("indices", "values", "form")]

    def joined(gathered: list[Tensor]) -> Tensor:
        indices, values, forms = gathered
        _check_forms(group, forms.tolist())
        if op == Average:
            values = values / group.size()
        return torch.sparse_coo_tensor(
            indices.t(), values, x.shape, device=x.device, check_invariants=False
        )

    return calls.gathered(parts, names, group).mapped(joined)


def _check_forms(group: Group, forms: Sequence[Sequence[int]]) -> None:
    """Raises MismatchError, on all ranks alike, unless all say what the first says."""
    for rank, form in zip(group.ranks, forms, strict=True):
        if form != forms[0]:
            first, other = (
                f"{ReduceOp(one[0]).name} of shape {one[1:]}" for one in (forms[0], form)
            )
            text = f"sparse_allreduce: {first} on rank {group.ranks[0]}, but {other} on rank {rank}"
            raise MismatchError(text, rank=rank, op="sparse_allreduce")


_sparse_allreduce.__name__ = "sparse_allreduce"
sparse_allreduce, sparse_allreduce_async = running(_sparse_allreduce), starting(_sparse_allreduce)


def add_allreduce(unit: Unit, group: Group, tensor: Tensor, op: Any) -> None:
    """Adds the operations. Blocks until all ranks have told each other how much each brings."""
    if op.op != c10d.ReduceOp.SUM:
        raise UnimplementedError("corro: sparse tensors can only be summed up")
    if tensor.layout != torch.sparse_coo:
        raise UnimplementedError(f"corro: tensors of layout {tensor.layout} cannot be reduced")
    local = tensor.detach().coalesce().cpu()
    indices, values = local.indices().t().contiguous(), local.values().contiguous()
    dims, row = indices.size(1), values.shape[1:].numel()
    table = exchange(group, [values.size(0), dims, row])
    for rank, (_, *others) in zip(group.ranks, table, strict=True):
        if others != [dims, row]:
            text = f"allreduce: {dims} sparse dims and {row} elements a value here, but {others}"
            raise MismatchError(f"{text} on rank {rank}", rank=rank, op="allreduce")
    counts = [line[0] for line in table]
    all_indices = torch.empty((sum(counts), dims), dtype=indices.dtype, device="cpu")
    all_values = torch.empty((sum(counts), *values.shape[1:]), dtype=values.dtype, device="cpu")

    def add_up() -> None:
        total = torch.sparse_coo_tensor(all_indices.t(), all_values, tensor.shape, device="cpu")
        with torch.no_grad():
            tensor.copy_(total.coalesce())

    for source, target, width in ((indices, all_indices, dims), (values, all_values, row)):
        if target is all_values:
            unit.after(add_up)
        unit.add(
            _native.ALLGATHER,
            unit.source(source),
            unit.target(target),
            count=source.numel(),
            counts=[count * width for count in counts],
        )
