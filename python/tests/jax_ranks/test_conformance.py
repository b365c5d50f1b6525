"""corro.jax does what every front end does: with values, and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy
from conformance.front_end import FLOATS, Corro, FrontEnd, Values
from conformance.verbs import Verbs

import corro
import corro.jax


class Jax(Corro):
    dtypes = (*FrontEnd.dtypes, "bfloat16")

    def make(self, values: Values, dtype: str) -> Any:
        return jax.numpy.asarray(values, dtype)

    def read(self, x: Any) -> Values:
        wide = "float64" if self.dtype(x) in (*FLOATS, "bfloat16") else "int64"
        return numpy.asarray(x).astype(wide)

    def dtype(self, x: Any) -> str:
        return str(x.dtype)


class Compiled(Jax):
    differs = jax.errors.JaxRuntimeError
    refusals = (*Jax.refusals, TypeError)
    takes_uneven_rows = False

    def run(self, function: Callable[..., Any], *arrays: Any) -> Any:
        return jax.block_until_ready(jax.jit(function)(*arrays))


class TestValues(Verbs):
    front = Jax(corro.jax)


class TestCompiled(Verbs):
    front = Compiled(corro.jax)
