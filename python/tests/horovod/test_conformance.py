"""horovod.torch does what every front end does."""

from __future__ import annotations

import pytest
from conformance.front_end import Horovod
from conformance.of_torch import OfTorch
from conformance.verbs import Verbs

import horovod.torch as hvd


class Torch(OfTorch, Horovod):
    differs = hvd.HorovodInternalError
    refusals = (ValueError, IndexError)
    takes_strides = False


@pytest.mark.torch22
@pytest.mark.usefixtures("job")
class TestVerbs(Verbs):
    front = Torch(hvd)
