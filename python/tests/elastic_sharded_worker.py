"""A rank that trains a sharded model (see elastic_rank.py): FSDP2 over the back end "corro".

It trains the network of training.py: 32 rows are unequal parts for three ranks, and of one row two
of them have nothing. All ranks share a batch, so that the parameters after so many steps are the
same, but for rounding, however many ranks there were.
"""

from __future__ import annotations

import hashlib
import os
import signal
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
import without_compiler
from elastic_rank import (
    FILE,
    FIRST,
    JOINS,
    KILLS,
    STEPS,
    die_at,
    renew,
    run,
    say,
    wait_at_gate,
    where,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from training import adam, batch, mine, network

import corro.torch as corro
from corro import _context
from corro.checkpoint import Checkpointer

without_compiler.install()

COMMIT_EVERY = int(os.environ.get("COMMIT_EVERY", "1"))
FOLDER = os.environ.get("CHECKPOINTS")


def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """What it returns is the rank's own: the state is what makes ranks alike."""
    model: Any = network()
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(_context.epoch() == 0)
    size = dist.get_world_size()
    axes = (2, size // 2) if os.environ.get("REPLICAS") and size % 2 == 0 else (size,)
    mesh = init_device_mesh("cpu", axes, mesh_dim_names=("replicas", "shards")[-len(axes) :])
    for layer in (model[0], model[2], model):  # The last one leaves its parameters to the whole.
        fully_shard(layer, mesh=mesh)
    return model, adam(model)


def whole(value: Any) -> torch.Tensor:
    value = value.detach()
    tensor: torch.Tensor = value.full_tensor() if isinstance(value, DTensor) else value
    return tensor


def die(step: int, place: str) -> None:
    """Dies, if it is to, and takes the rank ALONG with it: at once, so that they are one loss."""
    if KILLS.get(str(FIRST)) == [step, place] and not JOINS:
        for path in FILE.parent.glob(f"{os.environ.get('ALONG')}-*.jsonl"):
            os.kill(int(path.stem.partition("-")[2]), signal.SIGKILL)
    die_at(step, place)


def end(state: Any, **facts: object) -> None:
    params = [whole(param) for param in state.model.parameters()]
    kept = [whole(v) for one in state.optimizer.state.values() for v in one.values()]
    data = b"".join(tensor.numpy().tobytes() for tensor in [*params, *kept])
    say(
        end=True,
        parameters=[value for param in params for value in param.flatten().tolist()],
        digest=hashlib.sha256(data).hexdigest(),
        **facts,
    )


def train_step(state: Any) -> None:
    step = state.step
    wait_at_gate(step)
    x, y = (mine(part) for part in batch(step))
    state.optimizer.zero_grad()
    hook = state.model[2].register_full_backward_hook(lambda *_: die(step, "backward"))
    loss = F.mse_loss(state.model(x), y)
    die_at(step, "forward")
    loss.backward()
    hook.remove()
    torch.nn.utils.clip_grad_norm_(state.model.parameters(), 1e6)  # Adds up over the mesh.
    die_at(step, "step")
    state.optimizer.step()
    die_at(step, "stepped")


def steps() -> None:
    if backend := os.environ.get("BACKEND"):
        dist.init_process_group(backend)
    state = corro.elastic.ShardedState(make, step=0, seen=[])
    checkpointer = Checkpointer(FOLDER, every=int(os.environ["EVERY"])) if FOLDER else None
    if checkpointer is not None:
        say(loaded=checkpointer.load(state))
    state.register_reset_callbacks([renew])

    @corro.elastic.run
    def train(state: Any) -> str:
        while state.step < STEPS:
            train_step(state)
            say(stepped=state.step)
            state.step += 1
            state.seen.append(dist.get_world_size())
            if checkpointer is not None:
                checkpointer.save(state)
                checkpointer.wait()
            if state.step % COMMIT_EVERY == 0:
                state.commit()
            say(step=state.step - 1, **where())
            die_at(state.step - 1, "between")
        return "returned"

    result = train(state)
    end(state, result=result, seen=state.seen, kept=state._copies.bytes, **where())


run(steps)
