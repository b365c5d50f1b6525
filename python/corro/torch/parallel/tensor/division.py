"""How a tensor lies on the ranks of an axis, and what brings its parts together.

    axis      the ranks that compute one sample together
    division    which dim of a tensor is divided over them, and where

A whole tensor is the same on all ranks of the axis, and so is its gradient. Four functions, each
the backward of another, lead between whole tensors and what a rank computes of its part alone:

    enter     whole to whole: a rank's own use of it          backward: sum
    sum       a rank's own share of a sum to the whole sum    backward: enter
    take      whole to part                                   backward: join
    join      part to whole                                   backward: take

From Shoeybi et al., "Megatron-LM", 2019, section 3, where enter and sum are f and g.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import corro.torch as ct
from corro._context import Group, barrier
from corro.errors import AbortedError, CorroError, MismatchError

_RELEASED_WITHIN = 10.0  # Seconds: others may compute before they come to their next collective.


class Axis:
    """Ranks that hold the parts of tensors; all call its collectives in the same order."""

    def __init__(self, rank: int, size: int, group: Group | None) -> None:
        """`group`: None where shapes alone matter; then nothing is sent."""
        self.rank, self.size = rank, size
        self._group = group
        self._entered: tuple[Tensor, int, Tensor] | None = None

    def reduced(self, tensor: Tensor, op: ct.ReduceOp = ct.Sum) -> Tensor:
        """Returns a new tensor: all ranks' tensors, reduced. Blocks."""
        if self._group is None:
            return tensor.clone()
        return ct.allreduce(tensor.detach(), op, group=self._group)

    @property
    def is_trial(self) -> bool:
        return self._group is None

    def entered(self, tensor: Tensor) -> Tensor:
        """enter(); of all uses of a tensor in a row, gradients are summed once."""
        if not tensor.requires_grad or not torch.is_grad_enabled():
            return tensor
        last, version = self._entered, tensor._version
        if last is None or last[0] is not tensor or last[1] != version:
            last = self._entered = tensor, version, enter(tensor, self)
        return last[2]

    def forget(self) -> None:
        """A forward is through."""
        self._entered = None

    def give_up(self, origins: frozenset[str], pieces: int = 0) -> None:
        """Hears that a split is made whole, since a function has no rule for it."""

    @contextmanager
    def released(self) -> Iterator[None]:
        """Inside, an error of this rank ends what others wait for in a collective: they raise
        MismatchError, as all do whose collectives differ."""
        if self._group is None:
            yield
            return
        try:
            yield
        except MismatchError as error:
            raise AbortedError(
                f"step: another rank has failed, or computes else: {error}"
            ) from error
        except BaseException:
            with suppress(CorroError):
                barrier(self._group, timeout=_RELEASED_WITHIN)
            raise

    def rows(self, tensor: Tensor, lengths: list[int]) -> Tensor:
        """Returns all ranks' rows, one rank's after the other's. Blocks."""
        if self._group is None:
            return tensor.new_empty((sum(lengths), *tensor.shape[1:]))
        return ct.allgather(tensor.detach(), sizes=lengths, group=self._group)


@dataclass(frozen=True, slots=True)
class Division:
    """A dim of `length` elements, in equal blocks of which each rank has an equal run.

    Queries, keys and values of one product are three blocks. One block may be divided unequally.
    """

    axis: Axis
    dim: int
    length: int
    blocks: int = 1

    @property
    def is_even(self) -> bool:
        return self.length % (self.blocks * self.axis.size) == 0

    @property
    def is_possible(self) -> bool:
        return self.is_even or (self.blocks == 1 and self.length >= self.axis.size)

    @property
    def lengths(self) -> list[int]:
        """Of each rank's part."""
        each, more = divmod(self.length, self.axis.size)
        return [each + (rank < more) for rank in range(self.axis.size)]

    @property
    def start(self) -> int:
        """Where this rank's run begins, in each block."""
        return sum(self.lengths[: self.axis.rank]) // self.blocks

    @property
    def own(self) -> int:
        """The length of this rank's part."""
        return self.lengths[self.axis.rank]

    def part(self, whole: Tensor) -> Tensor:
        """Returns this rank's part, as a view if it is one block."""
        run = self.own // self.blocks
        if self.blocks == 1:
            return whole.narrow(self.dim, self.start, run)
        shape = [*whole.shape]
        shape[self.dim : self.dim + 1] = self.blocks, self.length // self.blocks
        blocks = whole.reshape(shape)
        return blocks.narrow(self.dim + 1, self.start, run).flatten(self.dim, self.dim + 1)

    def joined(self, part: Tensor) -> Tensor:
        """Returns the whole of all ranks' parts. Blocks."""
        rows = self.axis.rows(part.movedim(self.dim, 0).contiguous(), self.lengths)
        if self.blocks > 1:
            runs = rows.reshape(self.axis.size, self.blocks, -1, *rows.shape[1:])
            rows = runs.transpose(0, 1).flatten(0, 2)
        return rows.movedim(0, self.dim).contiguous()


def enter(tensor: Tensor, axis: Axis) -> Tensor:
    """Returns the tensor, for a rank's own use; its gradient is the sum over all ranks."""
    result: Tensor = _Enter.apply(tensor, axis)
    return result


def summed(tensor: Tensor, axis: Axis) -> Tensor:
    """Returns the sum of all ranks' tensors, the same on all. Blocks."""
    result: Tensor = _Sum.apply(tensor, axis)
    return result


def take(whole: Tensor, division: Division) -> Tensor:
    """Returns this rank's part of a tensor that all have."""
    result: Tensor = _Take.apply(whole, division)
    return result


def join(part: Tensor, division: Division) -> Tensor:
    """Returns the whole of all ranks' parts, the same on all. Blocks."""
    result: Tensor = _Join.apply(part, division)
    return result


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return summed(gradient, ctx.axis), None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return axis.reduced(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return enter(gradient, ctx.axis), None


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, division: Division) -> Tensor:
        ctx.division = division
        return division.part(whole).clone(memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return join(gradient, ctx.division), None


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, division: Division) -> Tensor:
        ctx.division = division
        return division.joined(part)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return take(gradient, ctx.division), None
