"""A rank that trains by corro.fit(): fit_worker.py FOLDER PINS END.

Rank 0 kills itself as it reads a sample: END "sample 48" says the 48th; "step 4" the first one
after a checkpoint of step 4 or later is durable, however late a busy machine writes it; "" none.
FOLDER "" keeps no checkpoints. Prints the losses of all epochs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import without_compiler
from parallel_training import adam, gpt, machines, next_token
from torch import Tensor

import corro

without_compiler.install()
TOKENS = torch.randint(0, 75, (22, 17), generator=torch.Generator().manual_seed(3))


READING_S = 0.02  # A sample's, where a checkpoint is awaited: writing one takes less than an epoch.


def newest_checkpoint(folder: str) -> int:
    """Returns the step of the newest one that is durable, -1: there is none."""
    names = (each.name.removeprefix("step-") for each in Path(folder).glob("step-*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


class Samples:
    def __init__(self, folder: str, end: str) -> None:
        self._folder = folder
        self._kind, _, number = end.partition(" ")
        self._number = int(number or 0)
        self._read = 0

    def __len__(self) -> int:
        return len(TOKENS)

    def __getitem__(self, number: int) -> Tensor:
        self._read += 1
        if self._kind and corro.rank() == 0 and self._is_over():
            os.kill(os.getpid(), signal.SIGKILL)
        return TOKENS[number]

    def _is_over(self) -> bool:
        if self._kind == "sample":
            return self._read == self._number
        time.sleep(READING_S)
        return newest_checkpoint(self._folder) >= self._number


def main() -> None:
    folder, pins, end = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    corro.init()
    model = gpt(0.2)
    history = corro.fit(
        model,
        adam(model),
        next_token,
        Samples(folder, end),
        8,
        3,
        checkpoint=folder or None,
        checkpoint_every=2 if folder else None,
        validation=TOKENS[:5],
        resources=machines(),
        pins=pins,
    )
    print(f"rank {corro.rank()}: {json.dumps([history.losses, history.validation])}")


main()
