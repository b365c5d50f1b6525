"""How a tensor lies on the ranks of an axis, and what brings its parts together.

    axis      the ranks that compute one sample together
    division    which dim of a tensor is divided over them, and where

A whole tensor is the same on all ranks of the axis, and so is its gradient. Of a rank's own use of
a whole tensor the gradient is a summand. Seven functions lead between whole tensors, parts, and
what a rank uses or sums up on its own:

    enter     whole to own use             backward: sum
    sum       summand to whole sum         backward: enter
    take      whole to part                backward: join
    join      part to whole                backward: take
    gather    part to own use of whole     backward: scatter
    scatter   summand to part of the sum   backward: gather
    summand   whole to summand             backward: nothing changes

Enter and sum are f and g of Shoeybi et al., "Megatron-LM", 2019, section 3; gather and scatter
those of Korthikanti et al., "Reducing activation recomputation", 2022, section 4.2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

import corro.torch as ct
from corro._context import Group, barrier
from corro.errors import AbortedError, CorroError, MismatchError

_RELEASED_WITHIN = 10.0  # Seconds: others may compute before they come to their next collective.


class _Use(NamedTuple):
    """What products have read last."""

    tensor: Tensor
    version: int
    whole: Tensor

    def is_of(self, tensor: Tensor) -> bool:
        """Whether a tensor has the same elements, in the same memory."""
        own = self.tensor
        return (
            self.version == tensor._version
            and own.data_ptr() == tensor.data_ptr()
            and own.shape == tensor.shape
            and own.stride() == tensor.stride()
        )


class Axis:
    """Ranks that hold the parts of tensors; all call its collectives in the same order."""

    def __init__(
        self, rank: int, size: int, group: Group | None, *, cuts_tokens: bool = False
    ) -> None:
        """
        Args:
            group: None where shapes alone matter; then nothing is sent.
            cuts_tokens: sequence parallelism: sums of products are left divided along tokens.
        """
        self.rank, self.size, self.cuts_tokens = rank, size, cuts_tokens
        self.layout: tuple[torch.Size, Division] | None = None
        """The dims before the last of what a product has read last, and how they are divided."""
        self._group = group
        self._entered: _Use | None = None
        self._again: _Use | None = None

    def reduced(self, tensor: Tensor, op: ct.ReduceOp = ct.Sum) -> Tensor:
        """Returns a new tensor: all ranks' tensors, reduced. Blocks."""
        if self._group is None:
            return tensor.clone()
        return ct.allreduce(tensor.detach(), op, group=self._group)

    @property
    def is_trial(self) -> bool:
        return self._group is None

    def entered(self, tensor: Tensor, division: Division | None = None) -> Tensor:
        """Returns what enter() makes of a whole tensor, or gather() of a part; of all uses in a
        row, gradients are summed once."""
        has_gradient = tensor.requires_grad and torch.is_grad_enabled()
        if division is None and not has_gradient:
            return tensor
        last = self._entered
        is_known = last is not None and last.tensor is tensor and last.version == tensor._version
        if last is None or not is_known or last.whole.requires_grad != has_gradient:
            made = enter(tensor, self) if division is None else gather(tensor, division)
            last = self._entered = _Use(tensor, tensor._version, made)
        return last.whole

    def again(self, part: Tensor, division: Division) -> Tensor:
        """Returns the whole of a part, in backward: of all uses in a row, it is sent once. Blocks,
        and has no gradient."""
        for last in (self._entered, self._again):
            if last is not None and last.is_of(part):
                return last.whole.detach()
        self._again = _Use(part, part._version, division.joined(part))
        return self._again.whole

    def forget(self) -> None:
        """A forward, or a backward, is through."""
        self._entered = self._again = self.layout = None

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

    def own_rows(self, tensor: Tensor, length: int) -> Tensor:
        """Returns this rank's rows of the sum of all ranks' tensors. Blocks.

        `length`: how many; the first ranks have one more, if they are not equal.
        """
        if self._group is None:
            return tensor.new_empty((length, *tensor.shape[1:]))
        return ct.reducescatter(tensor.detach(), ct.Sum, group=self._group)


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

    def own_part(self, whole: Tensor) -> Tensor:
        """Returns this rank's part, in memory of its own."""
        return self.part(whole).clone(memory_format=torch.contiguous_format)

    def reduced(self, tensor: Tensor) -> Tensor:
        """Returns this rank's part of the sum of all ranks' tensors. Blocks."""
        rows = tensor.movedim(self.dim, 0)
        if self.blocks > 1:
            runs = rows.reshape(self.blocks, self.axis.size, -1, *rows.shape[1:])
            rows = runs.transpose(0, 1).flatten(0, 2)
        own = self.axis.own_rows(rows.contiguous(), self.own)
        return own.movedim(0, self.dim).contiguous()

    def joined(self, part: Tensor) -> Tensor:
        """Returns the whole of all ranks' parts. Blocks."""
        rows = self.axis.rows(part.movedim(self.dim, 0).contiguous(), self.lengths)
        if self.blocks > 1:
            runs = rows.reshape(self.axis.size, self.blocks, -1, *rows.shape[1:])
            rows = runs.transpose(0, 1).flatten(0, 2)
        return rows.movedim(0, self.dim).contiguous()


def enter(tensor: Tensor, axis: Axis) -> Tensor:
    """Returns the tensor, for a rank's own use; its gradient is the sum over all ranks."""
    return _mapped(tensor, _same, axis.reduced)


def summed(tensor: Tensor, axis: Axis) -> Tensor:
    """Returns the sum of all ranks' tensors, the same on all. Blocks."""
    return _mapped(tensor, axis.reduced, _same)


def take(whole: Tensor, division: Division) -> Tensor:
    """Returns this rank's part of a tensor that all have."""
    return _mapped(whole, division.own_part, division.joined)


def join(part: Tensor, division: Division) -> Tensor:
    """Returns the whole of all ranks' parts, the same on all. Blocks."""
    return _mapped(part, division.joined, division.own_part)


def gather(part: Tensor, division: Division) -> Tensor:
    """Returns the whole of all ranks' parts, for a rank's own use. Blocks."""
    return _mapped(part, division.joined, division.reduced)


def scatter(tensor: Tensor, division: Division) -> Tensor:
    """Returns this rank's part of the sum of all ranks' tensors. Blocks."""
    return _mapped(tensor, division.reduced, division.joined)


def summand(whole: Tensor, axis: Axis) -> Tensor:
    """Returns what this rank adds to a sum that is the whole: all of it, or nothing."""
    return _mapped(whole, _same if axis.rank == 0 else torch.zeros_like, _same)


_Way = Callable[[Tensor], Tensor]


def _same(tensor: Tensor) -> Tensor:
    return tensor.view_as(tensor)


def _mapped(tensor: Tensor, there: _Way, back: _Way) -> Tensor:
    result: Tensor = _Map.apply(tensor, there, back)
    return result


class _Map(torch.autograd.Function):
    """One of the seven: what becomes of the tensor, and of its gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, there: _Way, back: _Way) -> Tensor:
        ctx.ways = back, there
        return there(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _mapped(gradient, *ctx.ways), None, None
