"""The sum of sparse tensors: the ranks gather all indices and values, and each adds them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as c10d

from corro import _native
from corro._context import Group, exchange
from corro.errors import MismatchError, UnimplementedError

if TYPE_CHECKING:
    from torch import Tensor

    from corro.torch.units import Unit


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
    all_indices = torch.empty((sum(counts), dims), dtype=indices.dtype)
    all_values = torch.empty((sum(counts), *values.shape[1:]), dtype=values.dtype)

    def add_up() -> None:
        total = torch.sparse_coo_tensor(all_indices.t(), all_values, tensor.shape)
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
