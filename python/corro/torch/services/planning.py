"""The plan of a network: cells become services, edges channels; lanes say what runs together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from corro.graph import Channel, Lane, Operation, Plan, Service
from corro.torch.parallel import slots
from corro.torch.services.cells import Cell, Edge, Reduce

_DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}
_ALIGNMENT = 64


def plan_of(cells: Sequence[Cell], ranks: int, apart: bool) -> Plan:
    """Returns the plan that all ranks load.

    Args:
        apart: each cell has a lane of its own, and not those of a rank one together.
    """
    together = () if apart else tuple(Lane(name=f"rank{r}", ranks=(r,)) for r in range(ranks))
    own = [
        Lane(name=cell.name, order="agreed", ranks=tuple(sorted(cell.ranks)))
        if isinstance(cell, Reduce)
        else Lane(name=cell.name, ranks=(cell.rank,))
        for cell in cells
        if apart or isinstance(cell, Reduce)
    ]
    return Plan(
        ranks=ranks,
        lanes=(*together, *own),
        channels=tuple(_channel(edge) for cell in cells for edge in cell.outputs),
        services=tuple(
            Service(
                name=cell.name,
                lane=cell.name if apart or isinstance(cell, Reduce) else f"rank{cell.rank}",
                priority=cell.priority,
                duration_ns=min(int(cell.seconds * 1e9), 10**12),
                inputs=tuple(edge.name for edge in cell.inputs),
                outputs=tuple(edge.name for edge in cell.outputs),
                operation=_operation(cell),
            )
            for cell in cells
        ),
    )


def _operation(cell: Cell) -> Operation | None:
    if not isinstance(cell, Reduce):
        return None
    edge = cell.outputs[0]
    dtype = _DTYPES[edge.dtype]
    return Operation(kind="allreduce", dtype=dtype, count=edge.shape[0], reduce_op="sum")


def _channel(edge: Edge) -> Channel:
    return Channel(
        name=edge.name, slots=edge.slots, initial=len(edge.initial), slot_bytes=slot_bytes(edge)
    )


def slot_bytes(edge: Edge) -> int:
    """Returns the bytes of a slot: none for a token."""
    if edge.kind == "token":
        return 0
    size = edge.bytes + (slots.HEADER if edge.kind == "tensor" else 0)
    return -(-size // _ALIGNMENT) * _ALIGNMENT
