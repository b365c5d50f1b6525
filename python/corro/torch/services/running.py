"""Runs the plan of a network on this rank: its cells, with tensors from slots and into slots.

sequence     one lane a rank: its services one after the other, on the thread that calls run()
threads      a lane and a thread for each service
coroutines   a lane for each service, and one thread that computes them all: a service that
             awaits something lets others go on
by a policy  a lane for each service, served one after the other in the order of the policy
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

import corro
from corro import _native
from corro.errors import InvalidArgumentError
from corro.loaded_plan import Firing
from corro.torch.parallel import slots
from corro.torch.services.cells import Call, Cell, Edge, Reduce, Tensors, call_here
from corro.torch.services.planning import plan_of

LANES = ("sequence", "threads", "coroutines")
_SECONDS_BETWEEN_LOOKS = 0.2
FIRST = 1  # Step 0 was run before the plan (first_step.py).


class Running:
    """A network's plan, loaded on all ranks."""

    def __init__(
        self,
        cells: Sequence[Cell],
        ranks: int,
        lanes: str,
        apart: bool,
        fire: Callable[[Cell, int, Tensors, Call], Tensors],
    ) -> None:
        self.plan = plan_of(cells, ranks, apart)
        self._lanes = lanes
        self._fire = fire
        rank = corro.rank()
        self._own = {
            cell.name: cell for cell in cells if cell.rank == rank and not isinstance(cell, Reduce)
        }
        self.loaded = corro.load_plan(self.plan)
        for cell in self._own.values():
            for edge in cell.inputs:
                for number, tensor in enumerate(edge.initial):
                    if edge.kind != "token":
                        _write(edge, self.loaded.slot(edge.name, number), tensor)

    def run(self, until: int, order: Sequence[tuple[str, int]] | None) -> None:
        """Runs all steps below `until`; blocks.

        Args:
            order: the services of all ranks, with the plan's micro-batch, if a policy has decided.
        """
        work = self.loaded.start(until - FIRST)
        with self._calls(work) as call:
            functions = {
                name: partial(self._compute, cell, call, work) for name, cell in self._own.items()
            }
            if order is None:
                self.loaded.run(until - FIRST, functions)
                return
            for name, micro in order:
                if name in functions:
                    self.loaded.serve(name, functions, micro + 1)
            work.wait()

    def unload(self) -> None:
        """Forgets the plan."""
        self.loaded.unload()

    @contextmanager
    def _calls(self, work: _native.Work) -> Iterator[Call]:
        if self._lanes != "coroutines":
            yield call_here
            return
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="corro-services", daemon=True)
        thread.start()
        try:
            yield partial(_call_on, loop, work)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _compute(self, cell: Cell, call: Call, work: _native.Work, firing: Firing) -> None:
        inputs = [_read(edge, view) for edge, view in zip(cell.inputs, firing.inputs, strict=True)]
        try:
            outputs = self._fire(cell, firing.micro + FIRST, inputs, call)
        except InvalidArgumentError as error:
            if isinstance(error.__cause__, futures.CancelledError):
                work.wait()  # Raises why the plan has stopped.
            raise
        for edge, view, tensor in zip(cell.outputs, firing.outputs, outputs, strict=True):
            if edge.kind != "token":
                _write(edge, view, tensor)


def _call_on(
    loop: asyncio.AbstractEventLoop, work: _native.Work, function: Call, *arguments: Any
) -> Any:
    """Calls a function on the loop's thread; what it awaits may never come if the plan stops."""

    async def call() -> Any:
        result = function(*arguments)
        return await result if asyncio.iscoroutine(result) else result

    future = asyncio.run_coroutine_threadsafe(call(), loop)
    while not futures.wait([future], _SECONDS_BETWEEN_LOOKS).done:
        if work.done():
            future.cancel()
    return future.result()


def check_kind(tensor: Tensor) -> None:
    """Raises InvalidArgumentError unless channels can carry such a tensor."""
    if tensor.dtype not in slots.DTYPES or tensor.dim() > slots.MOST_DIMS:
        raise InvalidArgumentError(
            f"gives {tensor.dim()} dims of {_name(tensor.dtype)}, which no channel carries: at "
            f"most {slots.MOST_DIMS}, of {', '.join(map(_name, slots.DTYPES))}"
        )


def check_shape(edge: Edge, tensor: Tensor) -> None:
    """Raises InvalidArgumentError unless a tensor is as in the first step, or has fewer rows."""
    if tensor.dtype == edge.dtype and tensor.dim() == len(edge.shape):
        shape = tuple(tensor.shape)
        if shape == edge.shape or (
            edge.kind == "tensor" and shape[1:] == edge.shape[1:] and shape[0] < edge.shape[0]
        ):
            return
    raise InvalidArgumentError(
        f"gives {tuple(tensor.shape)} of {_name(tensor.dtype)}; the first step gave "
        f"{edge.shape} of {_name(edge.dtype)}, and others may have fewer rows alone"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _write(edge: Edge, view: memoryview, tensor: Tensor | None) -> None:
    assert tensor is not None
    if edge.kind == "flat":
        torch.frombuffer(view, dtype=edge.dtype, count=edge.shape[0]).copy_(tensor)
    else:
        slots.write(view, tensor, edge.name)


def _read(edge: Edge, view: memoryview) -> Tensor | None:
    """Returns a copy: users may keep it, and slots are written again."""
    if edge.kind == "token":
        return None
    if edge.kind == "flat":
        return torch.frombuffer(view, dtype=edge.dtype, count=edge.shape[0]).clone()
    tensor = slots.read(view)
    assert tensor is not None
    return tensor.clone()
