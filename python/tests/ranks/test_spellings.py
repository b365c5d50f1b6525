"""Every public verb of corro.torch and corro.numpy, by every spelling of its call.

The verbs are found by their signatures, so that a new one is tested as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import corro.numpy as cn
import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]

WITHOUT_GRADIENT = {"gather", "recv", "reduce", "scatter", "send", "sparse_allreduce"}


def verbs(module: Any) -> dict[str, Callable[..., Any]]:
    """Returns the public functions that take tensors first."""
    found = {}
    for name in module.__all__:
        function = getattr(module, name)
        if inspect.isroutine(function):
            parameters = list(inspect.signature(function).parameters)
            if parameters and parameters[0] in ("x", "xs", "out"):
                found[name] = function
    return found


DIFFERENTIABLE = {
    name: verb
    for name, verb in verbs(corro).items()
    if name not in WITHOUT_GRADIENT and not name.endswith(("_", "_async"))
}


def spellings(verb: Callable[..., Any], given: Any) -> Iterator[Any]:
    """Calls the verb in every way; all other arguments are their defaults."""
    first, *others = inspect.signature(verb).parameters.values()
    defaults = {one.name: one.default for one in others}
    positional = [one.default for one in others if one.kind is one.POSITIONAL_OR_KEYWORD]
    by_keyword = {one.name: one.default for one in others if one.kind is one.KEYWORD_ONLY}
    yield verb(given)
    yield verb(**{first.name: given})
    yield verb(given, **defaults)
    yield verb(**defaults, **{first.name: given})
    yield verb(given, *positional, **by_keyword)


def tensors(result: Any) -> list[torch.Tensor]:
    """Returns those in a verb's result."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [one for one in result if isinstance(one, torch.Tensor)]


def leaf() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(2 * corro.size(), 2))


def test_what_is_differentiable() -> None:
    """allreduce and its like are; so is a new verb, unless it is named above."""
    assert sorted(DIFFERENTIABLE) == [
        "allgather",
        "allreduce",
        "alltoall",
        "broadcast",
        "grouped_allgather",
        "grouped_allreduce",
        "grouped_reducescatter",
        "reducescatter",
    ]


@pytest.mark.parametrize("verb", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE)
def test_no_spelling_loses_the_graph(verb: Callable[..., Any]) -> None:
    x = leaf()
    several = [
        [x, torch.ones(2 * corro.size())],
        (torch.ones(2 * corro.size()), x),
        {"x": x}.values(),
        torch.nn.ParameterList([x]),
    ]
    grouped = next(iter(inspect.signature(verb).parameters)) == "xs"
    for given in several if grouped else [x]:
        for result in spellings(verb, given):
            x.grad = None
            sum(one.sum() for one in tensors(result)).backward()
            assert x.grad is not None


@pytest.mark.parametrize("verb", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE)
def test_no_spelling_makes_a_graph_of_nothing(verb: Callable[..., Any]) -> None:
    grouped = next(iter(inspect.signature(verb).parameters)) == "xs"
    for x in (leaf().detach(), leaf()):
        with torch.set_grad_enabled(not x.requires_grad):
            for result in spellings(verb, [x] if grouped else x):
                assert not any(one.requires_grad for one in tensors(result))


@pytest.mark.parametrize("module", [corro, cn], ids=["torch", "numpy"])
def test_forms_of_a_verb_take_the_same(module: Any) -> None:
    """But for where the result goes, and the sizes that tensors of a group tell each other."""
    forms = verbs(module)

    def parameters(name: str) -> list[tuple[str, object, object]]:
        return [
            (one.name.replace("xs", "x"), one.kind, one.default)
            for one in inspect.signature(forms[name]).parameters.values()
            if one.name not in ("out", "outs", "sizes")
        ]

    for name in forms:
        plain = name.rstrip("_").removesuffix("_async").removeprefix("grouped_")
        assert parameters(name) == parameters(plain), name
