"""Whether JAX makes a program of what is called now, or it runs at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import jax

from corro.errors import InvalidArgumentError

P = ParamSpec("P")
R = TypeVar("R")

_ASK = "get_opaque_trace_state"
_state: Any = import_module("jax.extend.core")
if not hasattr(_state, _ASK):  # JAX 0.7 has it there.
    _state = import_module("jax.core")
_state = getattr(_state, _ASK)


def _now() -> Any:
    return _state(convention="flax")


with jax.ensure_compile_time_eval():  # Whoever imports this may be traced.
    _RUNS = _now()


def is_tracing() -> bool:
    """Returns whether a function is compiled, differentiated or mapped; then values may be there.

    An array that is none of the function's arguments has its value, and what is done with it is a
    part of the program nevertheless.
    """
    return bool(_now() != _RUNS)


def outside(function: Callable[P, R]) -> Callable[P, R]:
    """Has it refuse to be called while a function is traced: it would run then, and never again."""

    @functools.wraps(function)
    def verb(*args: P.args, **kwargs: P.kwargs) -> R:
        if is_tracing():
            raise InvalidArgumentError(
                f"corro.jax.{function.__name__}: not in a function that JAX compiles or"
                " differentiates: it would run while JAX looks at the function, and not in it"
            )
        return function(*args, **kwargs)

    return verb
