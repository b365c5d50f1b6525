"""One rank of an elastic job: `python elastic_worker.py SCENARIO FOLDER STEPS`.

It trains the network of training.py: all ranks share a batch, so that the parameters after so many
steps are the same, but for rounding, however many ranks there were. What it does is in FOLDER, one
file a process, as lines of JSON.

KILLS says which ranks of the first epoch kill themselves, in which step, and where; SIGNAL by what.
In the step GATE ranks wait until another epoch comes, since a rank joins; which it does not before.
In the step BUSY they communicate, until what the scenario says.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from training import SAMPLES, batch, examples, mine, network, sgd

import corro.torch as corro
from corro import _context
from corro.torch import backend

STEPS = int(sys.argv[3])
FIRST = int(os.environ["CORRO_RANK"])  # In the first epoch: whom KILLS is about.
KILLS: dict[str, list[Any]] = json.loads(os.environ.get("KILLS", "{}"))
GATE = int(os.environ.get("GATE", "-1"))
BUSY = int(os.environ.get("BUSY", "-1"))
JOINS = os.environ.get("CORRO_JOINS") == "1"
SIGNAL = os.environ.get("SIGNAL", "SIGKILL")  # HANG: it does nothing any more.
FILE = Path(sys.argv[2]) / f"{FIRST}-{os.getpid()}.jsonl"


def say(**facts: object) -> None:
    with FILE.open("a") as file:
        file.write(json.dumps(facts) + "\n")


def wait_at_gate(step: int) -> None:
    mark = FILE.parent.with_name("gate")
    if JOINS or step != GATE:
        return
    corro.barrier()  # None is at the end of the step before, where it would leave.
    mark.touch()
    die_at(step, "gate")
    while not (member := _context.membership()) or not member.is_over():
        time.sleep(0.01)


def wait_for_gate() -> None:
    while GATE >= 0 and not FILE.parent.with_name("gate").exists():
        time.sleep(0.01)


def die_at(step: int, place: str) -> None:
    if not JOINS and KILLS.get(str(FIRST)) == [step, place]:
        while SIGNAL == "HANG":
            time.sleep(1)
        os.kill(os.getpid(), signal.Signals[SIGNAL])


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
    say(step=step, epoch=_context.epoch(), rank=corro.rank(), size=corro.size(), **facts)
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


def steps(**options: Any) -> None:
    """Without any commit(). Each gradient is a bucket: some are reduced when a rank dies."""
    model, optimizer = make(bucket_bytes=0, **options)
    state = corro.elastic.TorchState(model, optimizer, step=0)

    def renew() -> None:
        say(reset=True, epoch=_context.epoch(), rank=corro.rank(), size=corro.size())
        die_at(-1, "reset")

    state.register_reset_callbacks([renew])

    @corro.elastic.run
    def train(state: Any) -> str:
        while state.step < STEPS:
            train_step(state.step, model, optimizer)
            state.step += 1
        return "returned"

    result = train(state)
    end(
        model,
        optimizer,
        result=result,
        rank=corro.rank(),
        size=corro.size(),
        epoch=_context.epoch(),
    )


def talking(until: Callable[[], bool]) -> None:
    """As steps(), but that ranks communicate for a while."""
    model, optimizer = make()
    state = corro.elastic.TorchState(model, optimizer, step=0)

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            while state.step == BUSY and not until():
                FILE.parent.with_name("gate").touch()
                corro.allreduce(torch.ones(1))
                time.sleep(0.01)
            train_step(state.step, model, optimizer)
            state.step += 1

    train(state)
    end(model, optimizer, size=corro.size(), epoch=_context.epoch())


def parted() -> None:
    """A link is cut meanwhile."""
    talking(lambda: _context.epoch() > 0)


def starved() -> None:
    """Eight busy processes for each processor run longer than a rank that is stopped would live."""
    seconds = 6
    cpus = os.cpu_count() or 1
    busy = [sys.executable, "-S", "-c", f"import time\nt = time.time() + {seconds}\n"
            "while time.time() < t: pass"]  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []

    def over() -> bool:
        if FIRST == 0 and not started:
            started.extend(subprocess.Popen(busy) for _ in range(8 * cpus))
        ended = FIRST != 0 or all(process.poll() is not None for process in started)
        return bool(corro.allreduce(torch.tensor(float(ended)), corro.Min).item())

    talking(over)


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


def groups() -> None:
    """What of the user's has to be made again says so."""
    model, optimizer = make()
    state = corro.elastic.TorchState(model, optimizer, step=0)
    first = corro.new_group(range(corro.size()))
    worlds = [corro.world()]
    made = [first]
    state.register_reset_callbacks([lambda: made.append(corro.new_group(range(corro.size())))])

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            train_step(state.step, model, optimizer)
            state.step += 1
            corro.allreduce(torch.ones(1), group=made[-1])

    train(state)
    errors = []
    for group in (first, *worlds):
        try:
            corro.allreduce(torch.ones(1), group=group)
        except corro.FailedPreconditionError as error:
            errors.append(str(error))
    total = corro.allreduce(torch.ones(1), corro.Sum, group=made[-1]).item()
    end(model, optimizer, errors=errors, total=total)


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


def where() -> dict[str, int]:
    return {"epoch": _context.epoch(), "rank": corro.rank(), "size": corro.size()}


def joining() -> None:
    """A rank dies while the others wait for it in the epoch that begins."""
    enter = _context._enter_epoch

    def die_or_enter(carried: Any) -> None:
        die_at(-1, "join")
        enter(carried)

    _context._enter_epoch = die_or_enter
    steps()


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


def asks() -> None:
    """Who joins asks for its rank, and the others wait for the rest of what it makes."""
    say(rank=corro.rank(), size=corro.size(), local_rank=corro.local_rank())
    steps()


def talks() -> None:
    """Communicates before its function is called, as ranks do that begin together."""
    corro.allreduce(torch.ones(1))
    steps()


def fails_once() -> None:
    """Who joins fails the first time."""
    once = FILE.parent.with_name("failed")
    if JOINS and not once.exists():
        once.touch()
        sys.exit(3)
    steps()


def asked() -> None:
    """Trains once the hosts were asked for again."""
    FILE.parent.with_name("gate").touch()
    asked = FILE.parent.with_name("asked")
    # Who asks once more has heard the first answer.
    while not asked.exists() or len(asked.read_text().splitlines()) < 2:
        time.sleep(0.01)
    steps()


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


def wrong() -> None:
    """What is the user's own mistake is raised, here on all ranks."""
    state = corro.elastic.State(step=0)

    @corro.elastic.run
    def train(_: Any) -> None:
        corro.allreduce(torch.ones(2 + corro.rank()))

    try:
        train(state)
    except corro.MismatchError as error:
        say(error=str(error), notes=getattr(error, "__notes__", []), epoch=_context.epoch())


SCENARIOS: dict[str, Callable[[], None]] = {
    f.__name__: f
    for f in (
        steps, two_passes, behind, commits, groups, samples, streams, joining, saves, asks, talks,
        fails_once, asked, horovods, horovods_grow, wrong, parted, starved, ddp, ddp_anew,
        ended,
    )
}  # fmt: skip

if __name__ == "__main__":
    torch.set_num_threads(1)
    if JOINS:
        say(joins=True)
        wait_for_gate()
    die_at(-1, "start")
    corro.init()
    SCENARIOS[sys.argv[1]]()
