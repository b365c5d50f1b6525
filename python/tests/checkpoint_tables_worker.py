"""A rank whose checkpoints have a model, a cursor and tables: `... FOLDER UNTIL [WHO STEP MS]`.

Goes on from the newest checkpoint until step UNTIL, with a checkpoint every second step. After it
has begun that of STEP, and MS milliseconds, WHO is killed: rank 0 by itself, or a server by rank 0.
Prints the step that it begins behind, and a digest of all that it has in the end.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time

import numpy as np
import torch
import without_compiler
from table_worker import server_process
from training import network, sgd

import corro.torch as corro
from corro.checkpoint import Checkpointer
from corro.table import SGD, Table

without_compiler.install()

KEYS = np.arange(20_000)


def check(state: corro.elastic.TorchState, users: Table, items: Table) -> None:
    """All of it is of one step: `users` takes two steps each, `items` one."""
    assert (users.steps, items.steps) == (2 * state.step, state.step), (users.steps, items.steps)
    assert (users.pull(KEYS[:7]) == -2.0 * corro.size() * state.step).all()
    assert (items.pull(KEYS[:7]) == -1.0 * corro.size() * state.step).all()
    assert state.cursor == {"epoch": 0, "sample": 4 * state.step}


def digest(state: corro.elastic.TorchState, *tables: Table) -> str:
    found = hashlib.sha256()
    for value in state.model.state_dict().values():
        found.update(value.numpy().tobytes())
    for table in tables:
        found.update(table.pull(KEYS).tobytes())
    return found.hexdigest()[:16]


def kill(who: str) -> None:
    if corro.rank() == 0:
        os.kill(os.getpid() if who == "rank" else server_process(1), signal.SIGKILL)


def main() -> None:
    folder, until = sys.argv[1], int(sys.argv[2])
    who, last, milliseconds = (*sys.argv[3:], "nobody", "-1", "0")[:3]
    corro.init()
    model = network()
    optimizer = corro.DistributedOptimizer(sgd(model), model.named_parameters())
    users = Table("users", 16, optimizer=SGD(lr=1.0))
    items = Table("a/items", 4, optimizer=SGD(lr=1.0))
    state = corro.elastic.TorchState(model, optimizer, step=0, cursor={"epoch": 0, "sample": 0})
    checkpointer = Checkpointer(folder, every=2, tables=[users, items])
    print(f"begins behind {checkpointer.load(state)}")
    check(state, users, items)
    while state.step < until:
        optimizer.zero_grad()
        model(torch.full((2, 6), 1.0 + state.step)).square().mean().backward()
        optimizer.step()
        for _ in range(2):
            users.push(KEYS, np.ones((len(KEYS), 16)))
        items.push(KEYS, np.ones((len(KEYS), 4)))
        state.step += 1
        state.cursor["sample"] += 4
        checkpointer.save(state)
        if state.step == int(last):
            time.sleep(int(milliseconds) / 1000)
            kill(who)
        else:
            checkpointer.wait()
    checkpointer.wait()
    check(state, users, items)
    print(f"ends with {digest(state, users, items)} failed {checkpointer.failed}")


main()
