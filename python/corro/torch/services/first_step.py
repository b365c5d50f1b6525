"""The first step: cell by cell, in order, each on its rank; all ranks hear what it gave.

It shows what channels carry (dtype, shape, whether gradients come back) and how long services take,
so nothing of this has to be declared, and no function is called without need. A step of a marked
graph ends with as many tokens in each channel as it began with: what is then there is what is
readable at the start of the plan.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence

import torch

from corro._context import world
from corro._objects import broadcast_bytes
from corro.errors import InvalidArgumentError
from corro.torch.services.cells import Cell, Forward, Reduce, Tensors

Fire = Callable[[Cell, int, Tensors], Tensors]


def run_first(cells: Sequence[Cell], fire: Fire) -> None:
    """Runs these cells for step 0; called by all ranks, blocks.

    Args:
        fire: runs one cell for a step.

    Raises:
        InvalidArgumentError: a service has failed, on every rank; the message names it.
    """
    for cell in cells:
        inputs = [edge.initial[0] for edge in cell.inputs]
        for edge in cell.inputs:
            if cell is edge.takers[-1]:
                edge.initial.pop(0)
        given, active, cell.seconds = _everywhere(cell, inputs, fire)
        for edge, tensor, gradients in zip(cell.outputs, given, active, strict=True):
            edge.initial.append(tensor)
            edge.active = gradients
            if tensor is not None:
                edge.dtype, edge.shape = tensor.dtype, tuple(tensor.shape)


def _everywhere(cell: Cell, inputs: Tensors, fire: Fire) -> tuple[Tensors, list[bool], float]:
    """Returns on every rank what the cell gives: outputs, whether gradients come back, seconds."""
    if isinstance(cell, Reduce):
        return [cell.total(inputs)], [False], 0.0

    def make() -> bytes:
        began = time.perf_counter()
        outputs = fire(cell, 0, [None if each is None else each.clone() for each in inputs])
        seconds = time.perf_counter() - began
        file = io.BytesIO()
        torch.save(([_plain(each) for each in outputs], _active(cell), seconds), file)
        return file.getvalue()

    data = broadcast_bytes("graph.run", make, world().ranks[cell.rank], world())
    outputs, active, seconds = torch.load(io.BytesIO(data), weights_only=True)
    return outputs, active, seconds


def _plain(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """Returns a copy without the storage of which it was a part."""
    return (
        None
        if tensor is None
        else tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    )


def _active(cell: Cell) -> list[bool]:
    """Returns for each output whether autograd will want its gradient."""
    if not isinstance(cell, Forward) or not cell.tracked:
        return [False for _ in cell.outputs]
    return [
        out is not None and out.requires_grad and not edge.loops and _tracked(edge.takers[0])
        for edge, out in cell.held[0].outputs
    ]


def _tracked(cell: Cell) -> bool:
    return isinstance(cell, Forward) and cell.tracked


def failure_of(cell: Cell, step: int, error: BaseException) -> InvalidArgumentError:
    """Returns what to tell all ranks of a service that has failed."""
    what = str(error) if isinstance(error, InvalidArgumentError) else _one_line(error)
    return InvalidArgumentError(f'service "{cell.name}", step {step}: {what}')


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
