"""A shard: parameters that are used together, of which each data-parallel rank keeps a part.

    rank 0   [ part of weight | part of bias ]
    rank 1   [ part of weight | part of bias ]

A part is a row of the parameter's elements, in the order of memory; the last ones may be shorter.
So what an optimizer does to a part is what it does to the parameter, if it goes by elements. From
Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC'20,
section 5, where it is the state that is cut (ZeRO 1), gradients, too (2), and parameters, too (3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

import corro.torch as ct
from corro._context import Group
from corro.torch.memory_order import dense_strides
from corro.torch.parallel.stand_ins import stand_in


class Shard:
    """Parameters of one dtype. Its collectives have to be called by all ranks of the group.

    The parts are tensors that an optimizer may step. While the parameters are whole, the parts are
    views of them; a shard that drops its parameters has them in memory of their own.
    """

    def __init__(
        self, names: Sequence[str], parameters: Sequence[nn.Parameter], group: Group, drops: bool
    ) -> None:
        """`parameters`: dense, on one device; `drops`: it may drop() them."""
        self.names = tuple(names)
        self.drops = drops
        self.parameters = tuple(parameters)
        self._group = group
        self._ranks, self._rank = group.size(), group.rank()
        self._lengths = [-(-each.numel() // self._ranks) for each in parameters]
        self._wholes: list[Tensor] = [each.data for each in parameters]
        self._row = self._zeros(1) if drops else None
        self.parts = tuple(self._own_parts())
        self.is_whole = True

    @property
    def bytes(self) -> int:
        """Of the whole parameters."""
        return sum(each.nbytes for each in self._wholes)

    # --- Gradients ----------------------------------------------------------------------------

    def reduce(self) -> None:
        """Adds the sums of all ranks' gradients to the parts', and frees the parameters'. Blocks.

        A part's stays None if no rank has one: flags in each row say so, in the same collective.
        """
        flags = [0.0 if each.grad is None else 1.0 for each in self.parameters]
        rows = self._zeros(self._ranks, len(flags))
        rows[:, sum(self._lengths) :] = torch.tensor(flags, dtype=rows.dtype, device=rows.device)
        for parameter, whole, columns in zip(
            self.parameters, self._wholes, self._columns(rows), strict=True
        ):
            if parameter.grad is not None:
                _pack(columns, _flat(_like(parameter.grad, whole)))
            parameter.grad = None
        own = ct.reducescatter(rows, ct.Sum, group=self._group)
        came = own[0, sum(self._lengths) :].tolist()
        for part, flag, columns in zip(self.parts, came, self._columns(own), strict=True):
            if flag:
                gradient = columns[0, : part.numel()]
                part.grad = gradient if part.grad is None else part.grad.add_(gradient)

    # --- Parameters ---------------------------------------------------------------------------

    def gather(self) -> None:
        """Makes the parameters whole, of all ranks' parts. Blocks."""
        if self._row is None:
            row = self._zeros(1)
            for part, columns in zip(self.parts, self._columns(row), strict=True):
                columns[0, : part.numel()] = part.detach()
        else:
            row = self._row
        rows = ct.allgather(row, group=self._group)
        for parameter, whole, columns in zip(
            self.parameters, self._wholes, self._columns(rows), strict=True
        ):
            whole.untyped_storage().resize_(whole.nbytes)
            _unpack(_flat(whole), columns)
            parameter.data = whole
        self.is_whole = True

    def drop(self) -> None:
        """Frees the parameters until they are gathered again; views that autograd has kept, too.

        Whoever reads one in between gets NaN.
        """
        if not self.is_whole or self._row is None:
            return
        for parameter, whole in zip(self.parameters, self._wholes, strict=True):
            parameter.data = stand_in(whole.shape, whole.dtype, whole.device, float("nan"))
            whole.untyped_storage().resize_(0)
        self.is_whole = False

    def take(self) -> None:
        """Takes into the parts what the parameters are, which the user may have changed."""
        self._wholes = [each.data for each in self.parameters]
        if self._row is not None:  # Views of other memory cannot be freed.
            self._wholes = [_with_own_memory(each) for each in self._wholes]
        for number, part in enumerate(self.parts):
            own = self._part(number, self._wholes[number])
            if self._row is None:
                part.data = own
            else:
                part.data.copy_(own)

    # --- What belongs to a parameter ------------------------------------------------------------

    def cut(self, number: int, tensor: Tensor) -> Tensor:
        """Returns this rank's part of a tensor like parameter `number`, in memory of its own."""
        return self._part(number, _like(tensor, self._wholes[number])).clone()

    def join(self, number: int, part: Tensor) -> Tensor:
        """Returns a tensor like parameter `number`, of all ranks' parts of it. Blocks."""
        row = torch.zeros((1, self._lengths[number]), dtype=part.dtype, device=part.device)
        row[0, : part.numel()] = part
        joined = _empty_like(self._wholes[number], part.dtype)
        _unpack(_flat(joined), ct.allgather(row, group=self._group))
        return joined

    # --- Where parts lie ------------------------------------------------------------------------

    def _own_parts(self) -> Iterator[nn.Parameter]:
        rows = [None] * len(self._wholes) if self._row is None else self._columns(self._row)
        for number, (whole, columns) in enumerate(zip(self._wholes, rows, strict=True)):
            own = self._part(number, whole)
            yield nn.Parameter(own if columns is None else columns[0, : own.numel()].copy_(own))

    def _part(self, number: int, tensor: Tensor) -> Tensor:
        length = self._lengths[number]
        return _flat(tensor)[self._rank * length : (self._rank + 1) * length]

    def _columns(self, rows: Tensor) -> Iterator[Tensor]:
        """Yields the columns of each parameter."""
        return iter(torch.split(rows[:, : sum(self._lengths)], self._lengths, dim=1))

    def _zeros(self, rows: int, more: int = 0) -> Tensor:
        like = self.parameters[0]
        return torch.zeros((rows, sum(self._lengths) + more), dtype=like.dtype, device=like.device)


def can_be_cut(parameter: nn.Parameter, ranks: int) -> bool:
    """Returns whether each rank can keep a part: it is dense, and not tiny."""
    return (
        parameter.layout == torch.strided
        and dense_strides(parameter) == list(parameter.stride())
        and parameter.numel() >= ranks
    )


def _flat(tensor: Tensor) -> Tensor:
    """Returns a dense tensor's elements in the order of memory, as a view."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def _like(tensor: Tensor, whole: Tensor) -> Tensor:
    """Returns the tensor with its elements where the whole parameter has them."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.stride() == whole.stride():
        return tensor
    return _empty_like(whole, tensor.dtype).copy_(tensor)


def _empty_like(whole: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(whole.shape, whole.stride(), dtype=dtype, device=whole.device)


def _with_own_memory(tensor: Tensor) -> Tensor:
    if tensor.untyped_storage().nbytes() == tensor.nbytes:
        return tensor
    return _empty_like(tensor, tensor.dtype).copy_(tensor)


def _pack(rows: Tensor, flat: Tensor) -> None:
    """Copies elements into rows, one after the other."""
    length = rows.shape[1]
    full, rest = divmod(flat.numel(), length)
    rows[:full].copy_(flat[: full * length].view(full, length))
    if rest:
        rows[full, :rest].copy_(flat[full * length :])


def _unpack(flat: Tensor, rows: Tensor) -> None:
    """Copies elements out of rows."""
    length = rows.shape[1]
    full, rest = divmod(flat.numel(), length)
    flat[: full * length].view(full, length).copy_(rows[:full])
    if rest:
        flat[full * length :].copy_(rows[full, :rest])
