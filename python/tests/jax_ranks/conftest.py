"""Fixtures of JAX's tests, which run on every rank of a job at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest

import corro


@pytest.fixture(scope="session", autouse=True)
def job() -> Iterator[None]:
    """Joins the job before the first test and leaves it after the last."""
    jax.config.update("jax_enable_x64", True)
    corro.init()
    yield
    corro.shutdown()


@pytest.fixture(params=["eager", "jit"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Returns what calls a function as it is, or compiled."""
    if request.param == "eager":
        return lambda function, *arguments: function(*arguments)
    return lambda function, *arguments: jax.jit(function)(*arguments)
