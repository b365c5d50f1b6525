"""Experts: of a bank of them, each rank of an axis has some.

A bank is a module as transformers 5 has them: `num_experts`, parameters whose first dim is that,
and forward(hidden_states, top_k_index, top_k_weights), which returns for each token the sum of what
its experts make of it, weighted.

    one rank     out[t] = sum over k of weights[t, k] * expert[index[t, k]](tokens[t])
    each rank    the same for the pairs (t, k) whose expert is its own, by the bank's own forward,
                 one pair a row; what ranks have is summed up, or scattered along tokens

All ranks have the same tokens, so who needs which expert is known without asking.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from corro.torch.parallel.tensor.division import Axis, Division, enter
from corro.torch.parallel.tensor.split import Split, whole_of
from corro.torch.parallel.tensor.tokens import sum_of

_ARGUMENTS = ["hidden_states", "top_k_index", "top_k_weights"]

Compute = Callable[[Tensor, Tensor, Tensor], Tensor]


class Bank(NamedTuple):
    """A module, and the names of its parameters in the model."""

    module: nn.Module
    names: list[str]


def banks_of(model: nn.Module) -> list[Bank]:
    """Returns the banks of a model."""
    banks = []
    for path, module in model.named_modules():
        count, own = getattr(module, "num_experts", None), list(module._parameters)
        named = dict(module.named_parameters(prefix=path))
        if (
            isinstance(count, int)
            and own
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
            made = self._compute(tokens[rows], *pairs)
            if not len(rows):  # No token, but gradients: zeros, as one process has.
                made = made + sum(each.flatten()[:0].sum() for each in self._module.parameters())
            return torch.zeros_like(tokens).index_add(0, rows, made.to(tokens.dtype))

        return _computed(axis, hidden_states, compute=of_own)
