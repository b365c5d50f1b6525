"""A split: a tensor of which each rank of an axis has a part, and which says it were whole.

    x.shape             that of the whole
    x.view(...)         a rule: the part is viewed, by numbers of the whole
    torch.cumsum(x, 2)  no rule: the parts are joined, and the function gets the whole

So a user's forward runs on parts as on whole tensors. A split has no elements of its own: functions
of torch come to `__torch_function__`, above autograd, where a rule computes with `local`, the part,
an ordinary tensor. Rules of torch's own functions are in shapes.py and products.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from corro.errors import FailedPreconditionError
from corro.torch.parallel.tensor.division import Axis, Division, join


class Split(Tensor):
    """A rank's part of a tensor: `local`, that lies as `division` says."""

    local: Tensor
    division: Division
    origins: frozenset[str]
    """Names of the parameters whose split made this a split."""
    is_of_tokens: bool
    """Sequence parallelism made it one, tokens.py: no parameter is the reason."""

    @staticmethod
    def __new__(
        cls,
        local: Tensor,
        division: Division,
        origins: frozenset[str] = frozenset(),
        *,
        is_of_tokens: bool = False,
    ) -> Split:
        shape = list(local.shape)
        assert shape[division.dim] == division.own
        shape[division.dim] = division.length
        made: Split = Tensor._make_wrapper_subclass(
            cls, shape, dtype=local.dtype, device=local.device
        )
        made.local, made.division, made.origins = local, division, origins
        made.is_of_tokens = is_of_tokens
        return made

    @classmethod
    def of_parameter(
        cls, part: Tensor, division: Division, origins: frozenset[str] = frozenset()
    ) -> Split:
        """Returns a split that is an nn.Parameter, too."""
        made = cls(part, division, origins)
        made._is_param = True
        return made

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _OF_WHOLES:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func in _OF_PARTS:
            return func(args[0].local, *args[1:], **kwargs)
        call = Call(func, args, kwargs)
        rule = RULES.get(func) or RULES.get(call.name)
        result = NotImplemented if rule is None else rule(call)
        if rule is not None and result is NotImplemented and call.is_mixed and not call.is_in_place:
            call = call.with_whole_tokens()
            result = rule(call)
        return call.joined() if result is NotImplemented else result

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise FailedPreconditionError(
            f"{func}: was called below torch's functions with a tensor that is split over ranks:"
            " pin tensor to 1"
        )


def whole_of(value: Any) -> Any:
    """Returns the whole of a split, for which all ranks have to ask; else the value. Blocks."""
    return join(value.local, value.division) if isinstance(value, Split) else value


def on_part(function: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """Returns what a function makes of a tensor's elements, or of those of a split's part."""
    if not isinstance(value, Split):
        return function(value)
    local = function(value.local)
    return Split(local, value.division, value.origins, is_of_tokens=value.is_of_tokens)


@contextmanager
def autograd_functions_get_wholes(
    give_up: Callable[[Any], None] | None = None,
) -> Iterator[None]:
    """Inside, functions of autograd, which torch does not tell of, get whole tensors.

    One that returns a split, as a checkpoint may that runs a module without gradients, is refused:
    gradients would get lost.

    Args:
        give_up: in a trial, hears of arguments and results that no split may be among.
    """
    own = torch.autograd.Function.__dict__["apply"]

    def apply(cls: Any, *args: Any, **keywords: Any) -> Any:
        call = own.__get__(None, cls)
        if cls is _SAVES_INPUTS or cls.__module__.startswith(__package__):
            return call(*args, **keywords)
        if give_up is not None:
            give_up((args, keywords))
        args, keywords = tree_map(whole_of, (args, keywords))
        result = call(*args, **keywords)
        splits = [each for each in tree_flatten(result)[0] if isinstance(each, Split)]
        if splits and (give_up is None or splits[0].is_of_tokens):
            raise FailedPreconditionError(
                f"{cls.__name__}: a function of autograd has returned a tensor that is split over"
                " ranks"
            )
        if give_up is not None:
            give_up(splits)
        return result

    torch.autograd.Function.apply = classmethod(apply)
    try:
        yield
    finally:
        torch.autograd.Function.apply = own


class Call:
    """One call of a function with splits among its arguments; what rules are given."""

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]
    ) -> None:
        self.function = function
        self.args = tuple(args)
        self.keywords = dict(keywords)
        self.splits = [
            each
            for value in (*self.args, *self.keywords.values())
            for each in (value if isinstance(value, (tuple, list)) else (value,))
            if isinstance(each, Split)
        ]
        name = getattr(function, "__name__", "")
        self.name = name.strip("_")
        self.is_in_place = self.name in IN_PLACE or (name[-1:] == "_" and name[:1] != "_")
        self.pieces = 0
        """What a rule without an answer may ask for: so many blocks of the parameter's dim."""

    @property
    def first(self) -> Split:
        return self.splits[0]

    @property
    def axis(self) -> Axis:
        return self.first.division.axis

    @property
    def is_mixed(self) -> bool:
        """Whether splits along tokens are among others."""
        return len({each.is_of_tokens for each in self.splits}) > 1

    def with_whole_tokens(self) -> Call:
        """Returns the call with those made whole. Blocks."""

        def whole(value: Any) -> Any:
            return self.whole(value) if isinstance(value, Split) and value.is_of_tokens else value

        args, keywords = tree_map(whole, (self.args, self.keywords))
        return Call(self.function, args, keywords)

    def taken(self, *names: str) -> list[Any]:
        """Returns arguments by their places and names; those that are not given are None."""
        given = dict(zip(names, self.args, strict=False)) | self.keywords
        return [given.get(name) for name in names]

    def split(self, local: Tensor, dim: int, length: int, blocks: int = 1) -> Split:
        """Returns a result whose part on this rank is `local`.

        Args:
            dim: that is divided; from the end, if it is below 0.
            length: of this dim of the whole.
            blocks: each of which is divided over the ranks.
        """
        origins = frozenset[str]().union(*(each.origins for each in self.splits))
        division = Division(self.axis, dim % local.dim(), length, blocks)
        is_of_tokens = all(each.is_of_tokens for each in self.splits)
        return Split(local, division, origins, is_of_tokens=is_of_tokens)

    def like(self, local: Tensor, split: Split) -> Split:
        """Returns a result that is divided as a split of as many dims is."""
        return self.split(local, split.division.dim, split.division.length, split.division.blocks)

    def whole(self, value: Any) -> Any:
        """Returns the whole of a split, for which all ranks have to ask; else the value. Blocks."""
        if not isinstance(value, Split):
            return value
        value.division.axis.give_up(value.origins, self.pieces)
        return whole_of(value)

    def joined(self) -> Any:
        """Calls the function with the whole of all splits."""
        args, keywords = tree_map(self.whole, (self.args, self.keywords))
        own = self.args[0] if self.is_in_place else None
        if isinstance(own, Split) and (own.is_of_tokens or not self.axis.is_trial):
            what = f"{self.name}, in place, has no rule for a tensor that is split over ranks"
            if self.axis.is_trial:
                raise FailedPreconditionError(what)
            pin = "sequence_parallel to False" if own.is_of_tokens else "tensor to 1"
            raise FailedPreconditionError(
                f"step: {what}, and was not called when the model was recorded: pin {pin}"
            )
        return self.function(*args, **keywords)


Rule = Callable[[Call], Any]
"""Returns what the function does, or NotImplemented: then it is called with whole tensors."""
RULES: dict[Any, Rule] = {}
"""By function, or by the name of a function of torch without underscores around it."""


def rule(function: Any) -> Callable[[Rule], Rule]:
    """Makes what it decorates the rule of a function, for tensors that are split over ranks.

        @corro.torch.parallel.rule(torch.ops.mine.rotate)
        def rotate(call):
            x, angle = call.args
            return call.like(torch.ops.mine.rotate(x.local, angle), x)

    The rule gets a `Call`, and computes with the parts, ordinary tensors. It returns what the
    function does: a split by `call.like()` or `call.split()`, or a tensor that is the same on all
    ranks. With NotImplemented, as without a rule, the function gets whole tensors.

    Args:
        function: of torch or torch.ops, or made by torch.overrides.wrap_torch_function().
    """

    def register(own: Rule) -> Rule:
        RULES[function] = own
        return own

    return register


IN_PLACE = frozenset(("iadd", "isub", "imul", "idiv", "itruediv", "ipow", "setitem"))
_OF_WHOLES = frozenset(
    [
        getattr(Tensor, name).__get__
        for name in ("shape", "ndim", "dtype", "device", "layout", "is_cuda", "is_cpu", "is_sparse")
    ]
    + [
        getattr(Tensor, name)
        for name in ("size", "dim", "ndimension", "numel", "nelement", "__len__", "element_size")
    ]
    + [Tensor.is_floating_point, Tensor.is_complex, torch.is_floating_point, torch.is_complex]
    + [torch.numel, Tensor.get_device]
)
_OF_PARTS = frozenset(
    [getattr(Tensor, name).__get__ for name in ("requires_grad", "is_leaf", "grad_fn")]
    + [Tensor.register_hook, Tensor.is_contiguous]
)
_SAVES_INPUTS = getattr(torch.utils.checkpoint, "_NoopSaveInputs", None)
"""Keeps what a checkpoint computes again with, as it is."""
QUESTIONS = _OF_WHOLES | _OF_PARTS
"""Functions that read no elements."""
