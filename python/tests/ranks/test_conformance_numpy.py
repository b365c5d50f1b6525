"""corro.numpy does what every front end does."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from conformance.front_end import Corro, Values
from conformance.verbs import Verbs

import corro.numpy


class Numpy(Corro):
    def make(self, values: Values, dtype: str) -> Any:
        return values.astype(dtype)

    def read(self, x: Any) -> Values:
        return numpy.asarray(x)

    def dtype(self, x: Any) -> str:
        return str(x.dtype)


@pytest.mark.usefixtures("job")
class TestVerbs(Verbs):
    front = Numpy(corro.numpy)
