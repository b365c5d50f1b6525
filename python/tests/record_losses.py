"""Runs a training script and keeps its losses: record_losses.py COUNT FILE SCRIPT ARGUMENT...

Rank R's losses go to FILE-R, as JSON. The script is the user's, unchanged: a loss is what a call of
cross_entropy returns. It ends by itself, or when it asks for one more than COUNT.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import torch.nn.functional as F
import without_compiler

import corro

without_compiler.install()

count, file, script = int(sys.argv[1]), sys.argv[2], sys.argv[3]
cross_entropy = F.cross_entropy
losses: list[float] = []


def recorded(*args: Any, **kwargs: Any) -> Any:
    if len(losses) == count:
        raise SystemExit
    loss = cross_entropy(*args, **kwargs)
    losses.append(loss.item())
    return loss


F.cross_entropy = recorded
sys.argv = sys.argv[3:]
try:
    runpy.run_path(script, run_name="__main__")
finally:
    Path(f"{file}-{corro.rank()}").write_text(json.dumps(losses))
