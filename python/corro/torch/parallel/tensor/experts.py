"""Experts: of a bank of them, each rank of an axis has some.

A bank is a module of transformers 5, or one whose class is marked by experts(). It has
`num_experts`, parameters whose first dim is that, and
forward(hidden_states, top_k_index, top_k_weights), which returns for each token the sum of what its
experts make of it, weighted.

    one rank     out[t] = sum over k of weights[t, k] * expert[index[t, k]](tokens[t])
    each rank    the same for the pairs (t, k) whose expert is its own, by the bank's own forward,
                 one pair a row; what ranks have is summed up, or scattered along tokens

All ranks have the same tokens, so who needs which expert is known without asking.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from corro.errors import InvalidArgumentError
from corro.torch.parallel.tensor.division import Axis, Division, enter
from corro.torch.parallel.tensor.split import Split, whole_of
from corro.torch.parallel.tensor.tokens import sum_of

_ARGUMENTS = ["hidden_states", "top_k_index", "top_k_weights"]

Compute = Callable[[Tensor, Tensor, Tensor], Tensor]


class Bank(NamedTuple):
    """A module, and the names of its parameters in the model."""

    module: nn.Module
    names: list[str]


_Class = TypeVar("_Class", bound=type[nn.Module])
_marked: set[type[nn.Module]] = set()


def experts(cls: _Class) -> _Class:
    """Marks a class of modules as banks of experts, which tensor parallelism divides.

        @corro.torch.parallel.experts
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.num_experts = 8
                self.up = nn.Parameter(torch.randn(8, 256, 64) / 8)

            def forward(self, hidden_states, top_k_index, top_k_weights):
                ...

    It says that all parameters have `num_experts` as their first dim, that there are no buffers,
    and that forward(tokens [T, features], index [T, K], weights [T, K]) returns the sum over k of
    weights[t, k] * f(index[t, k], tokens[t]), [T, features], without random numbers. On a rank it
    gets pairs of token and expert, one a row (K is 1), `num_experts` is the number of the rank's
    own, and so is the parameters' first dim.
    """
    _marked.add(cls)
    return cls


def banks_of(model: nn.Module) -> list[Bank]:
    """Returns the banks of a model."""
    banks = []
    for path, module in model.named_modules():
        count, own = getattr(module, "num_experts", None), list(module._parameters)
        named = dict(module.named_parameters(prefix=path))
        is_known = type(module) in _marked or type(module).__module__.startswith("transformers.")
        if (
            is_known
            and isinstance(count, int)
            and own
            and not any(True for _ in module.buffers())
            and not any(isinstance(each, nn.Dropout) and each.p for each in module.modules())
            and len(own) == len(named)
            and all(each.dim() > 1 and each.shape[0] == count for each in named.values())
            and list(inspect.signature(module.forward).parameters) == _ARGUMENTS
        ):
            banks.append(Bank(module, list(named)))
    return banks


@contextmanager
def divided(banks: Mapping[nn.Module, Division]) -> Iterator[None]:
    """Inside, banks that have parts of their parameters compute their own experts."""
    with ExitStack() as stack:
        for module, division in banks.items():
            forward = module.forward
            stack.enter_context(_replaced(module, "num_experts", division.own))
            stack.enter_context(_replaced(module, "forward", _Own(module, forward, division)))
        yield


@contextmanager
def tried(axis: Axis, banks: list[nn.Module]) -> Iterator[None]:
    """Inside, banks return what has the shapes of their results, and compute nothing."""
    with ExitStack() as stack:
        for module in banks:
            stack.enter_context(_replaced(module, "forward", _Trial(axis)))
        yield


@contextmanager
def _replaced(module: nn.Module, name: str, value: Any) -> Iterator[None]:
    """Inside, the module itself has this attribute."""
    fields = module.__dict__
    had, before = name in fields, fields.get(name)
    fields[name] = value
    try:
        yield
    finally:
        if had:
            fields[name] = before
        else:
            del fields[name]


def _computed(axis: Axis, hidden: Tensor, *, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns the sum of what all ranks make of all tokens, [tokens, features]. Blocks."""
    if isinstance(hidden, Split) and hidden.is_of_tokens:
        axis.layout = hidden.shape[:-1], hidden.division
        whole = axis.entered(hidden.local, hidden.division)
    else:
        if isinstance(hidden, Split):
            axis.give_up(hidden.origins)
        whole = axis.entered(whole_of(hidden))
    return sum_of(compute(whole), axis)


class _Trial:
    """Stands for a bank's forward where shapes alone matter."""

    def __init__(self, axis: Axis) -> None:
        self._axis = axis

    def __call__(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        for each in (top_k_index, top_k_weights):
            if isinstance(each, Split):
                self._axis.give_up(each.origins)
        return _computed(self._axis, hidden_states, compute=torch.clone)


class _Own:
    """Stands for a bank's forward: this rank's experts are `compute`d by it."""

    def __init__(self, module: nn.Module, compute: Compute, division: Division) -> None:
        self._module, self._compute, self._division = module, compute, division

    def __call__(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        axis, first, own = self._division.axis, self._division.start, self._division.own
        index = whole_of(top_k_index) - first
        weights = enter(whole_of(top_k_weights), axis)

        def of_own(tokens: Tensor) -> Tensor:
            rows, places = torch.where((index >= 0) & (index < own))
            pairs = index[rows, places].unsqueeze(1), weights[rows, places].unsqueeze(1)
            state = torch.default_generator.get_state()
            made = self._compute(tokens[rows], *pairs)
            if not torch.equal(state, torch.default_generator.get_state()):
                raise InvalidArgumentError(
                    f"step: {type(self._module).__name__}: experts that draw random numbers cannot"
                    " be divided: pin tensor to 1"
                )
            # All ranks have gradients of these, so that all sum them, also who has no row.
            reached = [tokens, weights, *(() if len(rows) else self._module.parameters())]
            made = made + sum(each.flatten()[:0].sum() for each in reached)
            return torch.zeros_like(tokens).index_add(0, rows, made.to(tokens.dtype))

        return _computed(axis, hidden_states, compute=of_own)
