"""Which torch runs the tests: from 2.15 on a back end in Python can do more."""

from __future__ import annotations

import pytest
import torch

NEW = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 15)
needs_new = pytest.mark.skipif(not NEW, reason=f"needs torch 2.15, this is {torch.__version__}")
