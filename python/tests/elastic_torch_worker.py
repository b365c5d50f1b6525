"""A rank that trains with torch (see elastic_rank.py): for torch's states and loaders.

It trains the network of training.py: all ranks share a batch, so that the parameters after so many
steps are the same, but for rounding, however many ranks there were.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
import without_compiler
from elastic_rank import (
    FILE,
    FIRST,
    GATE,
    JOINS,
    KILLS,
    STEPS,
    die_at,
    renew,
    run,
    say,
    wait_at_gate,
    wait_for_failure,
    where,
)
from torch.nn.parallel import DistributedDataParallel
from training import SAMPLES, batch, examples, mine, network, sgd

import corro.torch as corro
from corro import _context
from corro.torch import backend

without_compiler.install()


def digest(tensors: Any) -> str:
    return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()


def end(model: torch.nn.Module, optimizer: torch.optim.Optimizer, **facts: object) -> None:
    momenta = [optimizer.state[p]["momentum_buffer"] for p in model.parameters()]
    say(
        end=True,
        parameters=[value for p in model.parameters() for value in p.flatten().tolist()],
        digest=digest([*model.parameters(), *momenta]),
        **facts,
    )


def train_step(
    step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer, **facts: object
) -> None:
    """One step with the share of this rank, which may die in it."""
    wait_at_gate(step)
    x, y = (mine(part) for part in batch(step))
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    die_at(step, "forward")
    hidden: Any = getattr(model, "module", model)[2]
    hook = hidden.weight.register_hook(lambda _: die_at(step, "backward"))
    loss.backward()
    hook.remove()
    die_at(step, "step")
    optimizer.step()
    say(step=step, **where(), **facts)
    die_at(step, "between")


def make(**options: Any) -> tuple[torch.nn.Module, Any]:
    model, optimizer = make_apart()
    return model, corro.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def make_apart() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Returns what each rank makes for itself: sync() has to make it alike."""
    model = network()
    is_first = FIRST == 0 and not JOINS
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(1 if is_first else 0)
    return model, sgd(model)


def steps() -> None:
    """Without any commit(). Each gradient is a bucket: some are reduced when a rank dies."""
    model, optimizer = make(bucket_bytes=0)
    state = corro.elastic.TorchState(model, optimizer, step=0)

    state.register_reset_callbacks([renew])

    @corro.elastic.run
    def train(state: Any) -> str:
        while state.step < STEPS:
            train_step(state.step, model, optimizer)
            state.step += 1
        return "returned"

    end(model, optimizer, result=train(state), **where())


def two_passes() -> None:
    """Gradients of two passes are summed: a step that is redone begins with zeros."""
    model, optimizer = make(backward_passes_per_step=2)
    state = corro.elastic.TorchState(model, optimizer, step=0)

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            optimizer.zero_grad()
            for half in range(2):
                x, y = (mine(part[half::2]) for part in batch(state.step))
                (F.mse_loss(model(x), y) / 2).backward()
                die_at(state.step, f"pass {half}")
            optimizer.step()
            say(step=state.step, epoch=_context.epoch(), size=corro.size())
            state.step += 1

    train(state)
    end(model, optimizer)


def behind() -> None:
    """One rank has applied a step that the rank LATE has not when a third one is killed."""
    model, optimizer = make()
    state = corro.elastic.TorchState(model, optimizer, step=0)
    is_late = str(FIRST) == os.environ["LATE"]
    applied = FILE.parent.with_name("applied")

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            x, y = (mine(part) for part in batch(state.step))
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            if KILLS.get(str(FIRST)) == [state.step, "behind"]:
                while not applied.exists():
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGKILL)
            if is_late:
                corro.barrier()
            optimizer.step()
            say(step=state.step, epoch=_context.epoch(), size=corro.size())
            state.step += 1
            if not is_late:
                if [state.step - 1, "behind"] in KILLS.values():
                    applied.touch()
                corro.barrier()

    train(state)
    end(model, optimizer)


def commits() -> None:
    """Attributes that change in the middle of a step are put back."""
    model, optimizer = make()
    state = corro.elastic.TorchState(model, optimizer, step=0, begun=0)

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            state.begun += 1
            train_step(state.step, model, optimizer, begun=state.begun)
            state.step += 1
            state.commit()

    train(state)
    end(model, optimizer, begun=state.begun)


def ddp() -> None:
    """torch's own way, made once: the group and DDP go on. Buckets are small."""
    dist.init_process_group("corro")
    agree = backend.agree

    def die_or_agree(*args: Any) -> str:
        die_at(-1, "group")
        return agree(*args)

    backend.agree = die_or_agree
    model, optimizer = make_apart()
    shared = DistributedDataParallel(model, bucket_cap_mb=0.002)
    state = corro.elastic.TorchState(model, optimizer, step=0)
    state.register_reset_callbacks([lambda: say(reset=True, size=dist.get_world_size())])

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            train_step(state.step, shared, optimizer)
            state.step += 1

    train(state)
    total = torch.ones(1)
    dist.all_reduce(total)
    end(model, optimizer, total=total.item(), rank=dist.get_rank(), size=dist.get_world_size())


def ddp_early() -> None:
    """As ddp(). Who joins has no group to join when it begins."""
    if not JOINS:
        wait_for_failure()
    ddp()


def ddp_anew() -> None:
    """torch's own way, made in the function: ranks may join."""
    model, optimizer = make_apart()
    state = corro.elastic.TorchState(model, optimizer, step=0)

    @corro.elastic.run
    def train(state: Any) -> None:
        if not dist.is_initialized():
            dist.init_process_group("corro")
        shared = DistributedDataParallel(model, bucket_cap_mb=0.002)
        while state.step < STEPS:
            train_step(state.step, shared, optimizer)
            state.step += 1

    train(state)
    end(model, optimizer, size=dist.get_world_size())


def samples() -> None:
    """Two data epochs of an ElasticSampler; OPTIONS are its, or the DataLoader's."""
    options = json.loads(os.environ["OPTIONS"])
    workers = options.pop("num_workers", 0)
    sampler = corro.elastic.ElasticSampler(range(SAMPLES), seed=5, **options)
    loader = torch.utils.data.DataLoader(
        range(SAMPLES),  # type: ignore[arg-type]
        batch_sampler=sampler,
        num_workers=workers,
    )
    two_data_epochs(sampler, loader)


def streams() -> None:
    """Two data epochs of partitions of different lengths."""
    cuts = [0, 5, 40, 40, 41, 70, SAMPLES]
    made = corro.elastic.ElasticStreams(
        [range(a, b) for a, b in itertools.pairwise(cuts)], lambda part, offset: part[offset:]
    )
    two_data_epochs(made, torch.utils.data.DataLoader(made, batch_size=4))


def two_data_epochs(source: Any, loader: Any) -> None:
    """Trains on the source's samples, and says which each step takes, before and after it."""
    x, y = examples()
    model, optimizer = make()
    state = corro.elastic.TorchState(model, optimizer, source=source, data_epoch=0, step=0)

    @corro.elastic.run
    def train(state: Any) -> None:
        optimizer.set_backward_passes_per_step(getattr(source, "passes", 1))
        while state.data_epoch < 2:
            source.set_epoch(state.data_epoch)
            for step in source.steps(loader):
                wait_at_gate(state.step)
                optimizer.zero_grad()
                parts = list(step)
                say(
                    taken=[i for part, weight in parts if weight > 0 for i in part.tolist()],
                    weight=sum(weight for _, weight in parts),
                    data_epoch=state.data_epoch,
                    of_step=state.step,
                    **where(),
                )
                die_at(state.step, "forward")
                for part, weight in parts:
                    hidden: Any = model[2]
                    hook = hidden.weight.register_hook(lambda _: die_at(state.step, "backward"))
                    (F.mse_loss(model(x[part]), y[part]) * weight).backward()
                    hook.remove()
                die_at(state.step, "step")
                optimizer.step()
                say(step=state.step, **where())
                step.record()
                state.step += 1
                die_at(state.step - 1, "between")
            state.data_epoch += 1

    train(state)
    end(model, optimizer, steps=state.step)


def horovods() -> None:
    """A script of Horovod's: back to the last commit, and on from there."""
    import horovod.torch as hvd

    hvd.init(process_sets=[pair := hvd.ProcessSet([0, 1])])
    model = network()
    optimizer: Any = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    state: Any = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, begun=0)
    state.register_reset_callbacks([lambda: say(reset=True, size=hvd.size(), rank=hvd.rank())])

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            state.begun += 1
            train_step(state.step, model, optimizer, begun=state.begun)
            state.step += 1
            if state.step % 4 == 0:
                state.commit()

    train(state)
    total = hvd.allreduce(torch.ones(1), op=hvd.Sum).item()
    end(model, optimizer, begun=state.begun, total=total, set_of_two=pair.process_set_id)


def saves() -> None:
    """Loads a checkpoint before its function is called, as it does in each job, and saves some."""
    model, optimizer = make()
    state = corro.elastic.TorchState(model, optimizer, step=0)
    checkpointer = corro.checkpoint.Checkpointer(FILE.parent.with_name("saved"), every=4)
    say(loaded=checkpointer.load(state))

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            train_step(state.step, model, optimizer)
            state.step += 1
            if checkpointer.save(state):
                checkpointer.wait()

    try:
        train(state)
    finally:
        say(left=checkpointer.step)
    end(model, optimizer, saved=checkpointer.step)


def launcher() -> int:
    """Returns the pid of `corro run`, of which the agent is a fork."""
    parent = os.getppid()
    while b"run" in Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0"):
        pid = parent
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def ended() -> None:
    """The job is asked to end in the step GATE, as are the processes that read samples."""
    x, y = examples()
    model, optimizer = make()
    sampler = corro.elastic.ElasticSampler(range(SAMPLES), batch_size=4, seed=5)
    loader: Any = torch.utils.data.DataLoader(
        range(SAMPLES),  # type: ignore[arg-type]
        batch_sampler=sampler,
        num_workers=1,
    )
    state = corro.elastic.TorchState(model, optimizer, sampler=sampler, steps=0)
    checkpointer = corro.checkpoint.Checkpointer(FILE.parent.with_name("saved"), every=1000)
    say(loaded=checkpointer.load(state))

    @corro.elastic.run
    def train(state: Any) -> None:
        for step in sampler.steps(loader):
            if state.steps == GATE and FIRST == 0:
                os.kill(launcher(), signal.SIGTERM)
            wait_at_gate(state.steps)
            for reader in multiprocessing.active_children() if state.steps == GATE else []:
                reader.terminate()
            optimizer.zero_grad()
            for part, weight in step:
                (F.mse_loss(model(x[part]), y[part]) * weight).backward()
            optimizer.step()
            step.record()
            state.steps += 1
            checkpointer.save(state)

    try:
        train(state)
    finally:
        say(left=checkpointer.step)
    end(model, optimizer, steps=state.steps)


def horovods_grow() -> None:
    """A script of Horovod's: ranks join at a commit, and nothing is done again."""
    import horovod.torch as hvd

    hvd.init()
    model = network()
    optimizer: Any = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    state: Any = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
    state.register_reset_callbacks([lambda: say(reset=True, size=hvd.size(), rank=hvd.rank())])

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            train_step(state.step, model, optimizer)
            state.step += 1
            if state.step % 4 == 0:
                state.commit()

    train(state)
    end(model, optimizer, size=hvd.size())


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(
        steps, two_passes, behind, commits, samples, streams, saves, horovods, horovods_grow, ddp,
        ddp_early, ddp_anew, ended,
    )  # fmt: skip
