"""A rank that trains by a plan of corro.parallelize() (see elastic_rank.py).

It says each step's loss, which is that of one process, however many ranks there are, and when it
was committed. PINS are those of the first plan; CHECKPOINTS a folder. MAINS: the model is in
bfloat16, with main weights. OFFLOAD: a folder for what does not fit into LIMIT, of memory.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from typing import Any

import torch
import without_compiler
from elastic_rank import STEPS, die_at, renew, run, say, wait_at_gate, where
from parallel_training import SEED, adam, batches, gpt, machines, next_token, with_disk
from torch import Tensor, nn

import corro
from corro import _context, planner
from corro.checkpoint import Checkpointer
from corro.torch.parallel import Trainer, TrainerState, capability, drift, links, planning

without_compiler.install()
torch.set_num_threads(1)

PINS = json.loads(os.environ.get("PINS", "{}"))
FOLDER = os.environ.get("CHECKPOINTS")
EVERY = int(os.environ.get("EVERY", "5"))
MEASURES = "MEASURES" in os.environ
MAINS = "MAINS" in os.environ
OFFLOAD = os.environ.get("OFFLOAD")
LIMIT = os.environ.get("LIMIT")
if "LOOK" in os.environ:
    drift.LOOK, drift.LIMIT = int(os.environ["LOOK"]), -1.0  # Any step is longer than that.


WORK: Counter[str] = Counter()
"""How often what planning is made of was done in this process."""


def count(module: Any, name: str, what: str) -> None:
    """From now on calls of a module's function are counted."""
    function = getattr(module, name)

    def counted(*args: Any, **keywords: Any) -> Any:
        WORK[what] += 1
        return function(*args, **keywords)

    setattr(module, name, counted)


count(planner._planner, "plan", "plans")
count(planning, "trace_step", "recordings")
count(capability, "report_of", "measurements")
count(links, "measure", "links")


def dying(trainer: list[Trainer]) -> Any:
    """Returns a loss in whose forward and backward the rank may die."""

    def loss(model: nn.Module, tokens: Tensor) -> Tensor:
        found = next_token(model, tokens)
        if trainer and found.requires_grad:
            die_at(trainer[0].steps, "forward")
            found.register_hook(lambda _: die_at(trainer[0].steps, "backward"))  # type: ignore
        return found

    return loss


def make() -> tuple[Trainer, Any]:
    model, made = gpt(0.2), []
    if MAINS:
        model.to(torch.bfloat16)
    if os.environ.get("CORRO_JOINS"):
        with torch.no_grad():
            for each in model.parameters():
                each.zero_()  # It gets all from the others.
    optimizer = adam(model)
    torch.manual_seed(SEED)
    # Who joins has no number of ranks yet.
    here = with_disk if OFFLOAD else machines
    cluster = None if MEASURES or _context.is_outside() else here()
    trainer = corro.parallelize(
        model,
        optimizer,
        dying(made),
        batches()[0],
        cluster,
        pins=PINS,
        main_weights=MAINS,
        offload=OFFLOAD,
        memory_limit=LIMIT,
    )
    made.append(trainer)
    optimizer.register_step_pre_hook(lambda *_: die_at(trainer.steps, "step"))
    optimizer.register_step_post_hook(lambda *_: die_at(trainer.steps, "stepped"))
    return trainer, optimizer


def steps() -> None:
    trainer, optimizer = make()
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    state = TrainerState(trainer, scheduler=scheduler, seen=[], losses=[])
    checkpointer = Checkpointer(FOLDER, every=EVERY) if FOLDER else None
    if checkpointer is not None:
        say(loaded=checkpointer.load(state))
    state.register_reset_callbacks([renew])
    all_batches = batches(STEPS)

    @corro.elastic.run
    def train(state: Any) -> None:
        shape = trainer.plan.decisions.shape
        degrees = [shape.pipeline, shape.data, shape.zero, shape.tensor]
        say(plan=degrees, offload=shape.offload, work=dict(WORK), **where())
        while trainer.steps < STEPS:
            step = trainer.steps
            wait_at_gate(step)
            loss = trainer.step(all_batches[step])
            scheduler.step()
            state.losses.append(loss)
            state.seen.append(corro.size())
            if checkpointer is not None:
                checkpointer.save(state)
                checkpointer.wait()
            state.commit()
            say(step=step, at=time.time(), **where())
            die_at(step, "between")

    train(state)
    trainer.gather()
    say(end=True, losses=state.losses, seen=state.seen, kept=state._copies.bytes, **where())
    trainer.close()


run(steps)
