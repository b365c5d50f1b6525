"""A rank that trains by corro.fit(): fit_worker.py FOLDER PINS [LAST].

Kills itself, on rank 0, when the LASTth sample is read; FOLDER "" keeps no checkpoints. Prints the
losses of all epochs.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import torch
import without_compiler
from parallel_training import adam, gpt, machines, next_token
from torch import Tensor

import corro

without_compiler.install()
TOKENS = torch.randint(0, 75, (22, 17), generator=torch.Generator().manual_seed(3))


class Samples:
    def __init__(self, last: int) -> None:
        self._left = last

    def __len__(self) -> int:
        return len(TOKENS)

    def __getitem__(self, number: int) -> Tensor:
        self._left -= 1
        if self._left == 0 and corro.rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return TOKENS[number]


def main() -> None:
    folder, pins, last = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    corro.init()
    model = gpt(0.2)
    history = corro.fit(
        model,
        adam(model),
        next_token,
        Samples(last),
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
