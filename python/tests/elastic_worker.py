"""A rank that trains with numpy (see elastic_rank.py): for what is about ranks, whoever trains.

It trains the network of numpy_training.py: all ranks share a batch, so that the parameters after so
many steps are the same, but for rounding, however many ranks there were.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from elastic_rank import (
    BUSY,
    FILE,
    FIRST,
    JOINS,
    STEPS,
    die_at,
    renew,
    run,
    say,
    wait_at_gate,
    wait_for_failure,
    where,
)
from numpy_training import SAMPLES, Array, Network, batch, examples
from plans import stepping, summing

import corro
import corro.numpy
from corro import _context


def network() -> Network:
    """Returns what each rank makes for itself: sync() has to make it alike."""
    model = Network()
    if FIRST > 0 or JOINS:
        model.weights = [np.zeros_like(weight) for weight in model.weights]
    return model


def end(model: Network, **facts: object) -> None:
    digest = hashlib.sha256(model.flat().tobytes()).hexdigest()
    say(end=True, parameters=model.parameters(), digest=digest, **facts)


def apply(step: int, model: Network, gradients: Iterator[Array]) -> None:
    """Each gradient travels alone: some are reduced when a rank dies."""
    travelling = []
    for gradient in gradients:
        travelling.append(corro.numpy.allreduce_async(gradient))
        if len(travelling) == 2:
            die_at(step, "backward")
    die_at(step, "step")
    model.step([corro.numpy.synchronize(each) for each in travelling])


def train_step(step: int, model: Network, **facts: object) -> None:
    """One step with the share of this rank, which may die in it."""
    wait_at_gate(step)
    x, y = (part[corro.rank() :: corro.size()] for part in batch(step))
    die_at(step, "forward")
    apply(step, model, model.gradients(x, y))
    say(step=step, **where(), **facts)
    die_at(step, "between")


def steps() -> None:
    model = network()
    state = corro.elastic.State(model=model, step=0)
    state.register_reset_callbacks([renew])

    @corro.elastic.run
    def train(state: Any) -> str:
        while state.step < STEPS:
            train_step(state.step, model)
            state.step += 1
            state.commit()
        return "returned"

    end(model, result=train(state), **where())


def planned() -> None:
    """As steps(), with a plan of each world."""
    model = network()
    state = corro.elastic.State(model=model, step=0)

    @corro.elastic.run
    def train(state: Any) -> None:
        with corro.load_plan(summing(corro.size()), name=f"{corro.size()} ranks"):
            while state.step < STEPS:
                train_step(state.step, model)
                state.step += 1
                state.commit()

    train(state)
    end(model, **where())


def services() -> None:
    """As steps(), by two services of two ranks, which keep nothing but what is in slots."""
    model = network()
    state = corro.elastic.State(model=model, step=0)
    gradient = sum(weight.nbytes for weight in model.weights)
    first = 0

    def network_in(slot: memoryview) -> Network:
        now = Network()
        now.set_flat(np.frombuffer(slot, np.float32))
        return now

    def work(firing: corro.Firing) -> None:
        step, quarter = divmod(firing.micro, 4)
        given = network_in(firing.inputs[0]).quarter(first + step, quarter)
        firing.outputs[0][:] = given.tobytes()

    def step(firing: corro.Firing) -> None:
        *quarters, own = firing.inputs
        now = network_in(own)
        now.step_with([np.frombuffer(each, np.float32) for each in quarters])
        for output in firing.outputs:
            output[:] = now.flat().tobytes()

    @corro.elastic.run
    def train(state: Any) -> None:
        nonlocal first
        first = state.step
        loop, functions = [("state", {"work": work}), ("own", {"step": step})][corro.rank()]
        with corro.load_plan(stepping(gradient, 2 * gradient)) as loaded:
            loaded.slot(loop)[:] = model.flat().tobytes()
            while state.step < STEPS:
                done = state.step + 1 - first
                loaded.run(4 * done, functions)
                model.set_flat(np.frombuffer(loaded.slot(loop, done % 2), np.float32))
                say(step=state.step, **where())
                die_at(state.step, "between")
                state.step += 1
                state.commit()

    train(state)
    end(model, **where())


def talking(until: Callable[[], bool]) -> None:
    """As steps(), but that ranks communicate for a while."""
    model = network()
    state = corro.elastic.State(model=model, step=0)

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            while state.step == BUSY and not until():
                FILE.parent.with_name("gate").touch()
                corro.numpy.allreduce(np.ones(1))
                time.sleep(0.01)
            train_step(state.step, model)
            state.step += 1
            state.commit()

    train(state)
    end(model, **where())


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
        return bool(corro.numpy.allreduce(np.array(float(ended)), corro.Min))

    talking(over)


def commits() -> None:
    """Attributes that change in the middle of a step are put back."""
    model = network()
    state = corro.elastic.State(model=model, step=0, begun=0)

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            state.begun += 1
            train_step(state.step, model, begun=state.begun)
            state.step += 1
            state.commit()

    train(state)
    end(model, begun=state.begun)


def groups() -> None:
    """What of the user's has to be made again says so."""
    model = network()
    state = corro.elastic.State(model=model, step=0)
    first = corro.new_group(range(corro.size()))
    worlds = [corro.world()]
    made = [first]
    state.register_reset_callbacks([lambda: made.append(corro.new_group(range(corro.size())))])

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            train_step(state.step, model)
            state.step += 1
            state.commit()
            corro.numpy.allreduce(np.ones(1), group=made[-1])

    train(state)
    errors = []
    for group in (first, *worlds):
        try:
            corro.numpy.allreduce(np.ones(1), group=group)
        except corro.FailedPreconditionError as error:
            errors.append(str(error))
    total = float(corro.numpy.allreduce(np.array(1.0), corro.Sum, group=made[-1]))
    end(model, errors=errors, total=total)


def samples() -> None:
    """Two data epochs of an ElasticSampler; OPTIONS are its."""
    options = json.loads(os.environ["OPTIONS"])
    sampler = corro.elastic.ElasticSampler(range(SAMPLES), seed=5, **options)
    x, y = examples()
    model = network()
    state = corro.elastic.State(model=model, sampler=sampler, data_epoch=0, step=0)

    @corro.elastic.run
    def train(state: Any) -> None:
        while state.data_epoch < 2:
            sampler.set_epoch(state.data_epoch)
            for step in sampler.steps():
                wait_at_gate(state.step)
                parts = list(step)
                say(
                    taken=[i for part, weight in parts if weight > 0 for i in part],
                    weight=sum(weight for _, weight in parts),
                    data_epoch=state.data_epoch,
                    of_step=state.step,
                    **where(),
                )
                die_at(state.step, "forward")
                passes = [
                    [np.float32(weight) * each for each in model.gradients(x[part], y[part])]
                    for part, weight in parts
                ]
                sums = (np.sum(each, axis=0) for each in zip(*passes, strict=True))
                apply(state.step, model, sums)
                say(step=state.step, **where())
                step.record()
                state.step += 1
                die_at(state.step - 1, "between")
                state.commit()
            state.data_epoch += 1

    train(state)
    end(model, steps=state.step)


def joining() -> None:
    """A rank dies while the others wait for it in the epoch that begins."""
    enter = _context._enter_epoch

    def die_or_enter(carried: Any) -> None:
        die_at(-1, "join")
        enter(carried)

    _context._enter_epoch = die_or_enter
    steps()


def asks() -> None:
    """Who joins asks for its rank, and the others wait for the rest of what it makes."""
    say(rank=corro.rank(), size=corro.size(), local_rank=corro.local_rank())
    steps()


def talks() -> None:
    """Communicates before its function is called, as ranks do that begin together."""
    corro.numpy.allreduce(np.ones(1))
    wait_for_failure()
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


def wrong() -> None:
    """What is the user's own mistake is raised, here on all ranks."""
    state = corro.elastic.State(step=0)

    @corro.elastic.run
    def train(_: Any) -> None:
        corro.numpy.allreduce(np.ones(2 + corro.rank()))

    try:
        train(state)
    except corro.MismatchError as error:
        say(error=str(error), notes=getattr(error, "__notes__", []), epoch=_context.epoch())


if __name__ == "__main__":
    run(
        steps, commits, groups, samples, joining, asks, talks, fails_once, asked, wrong, parted,
        starved, planned, services,
    )  # fmt: skip
