"""corro.torch does what every front end does."""

from __future__ import annotations

import pytest
from conformance.front_end import Corro
from conformance.of_torch import OfTorch
from conformance.verbs import Verbs

import corro.torch


class Torch(OfTorch, Corro):
    pass


@pytest.mark.torch22
@pytest.mark.usefixtures("job")
class TestVerbs(Verbs):
    front = Torch(corro.torch)
