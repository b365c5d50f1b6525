"""A rank that steps until FOLDER/end is there: `python coordinator_worker.py FOLDER`.

Each process says in FOLDER/PID.jsonl which step it has done, in which epoch, of how many ranks. It
prints each tenth step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import corro
import corro.numpy
from corro import _context

FOLDER = Path(sys.argv[1])
FILE = FOLDER / f"{os.getpid()}.jsonl"


def say(step: int) -> None:
    facts = {
        "step": step,
        "epoch": _context.epoch(),
        "rank": corro.rank(),
        "size": corro.size(),
        "host": os.environ["HOROVOD_HOSTNAME"],
    }
    with FILE.open("a") as file:
        file.write(json.dumps(facts) + "\n")


corro.init()
state = corro.elastic.State(step=0, over=False)


@corro.elastic.run
def train(state: corro.elastic.State) -> None:
    while not state.over:
        ends = np.array([(FOLDER / "end").exists()], np.float32)
        state.over = bool(corro.numpy.allreduce(ends)[0] > 0)
        state.step += 1
        say(state.step)
        if state.step % 10 == 0 and corro.rank() == 0:
            print(f"at step {state.step}.", flush=True)
        time.sleep(0.02)  # As the work of a step: the test does something meanwhile.
        state.commit()


train(state)
