"""What a rank holds, and listens to, while an operation takes long."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import numpy
import pytest
import torch

import corro
import corro.numpy as cn
import corro.torch as ct

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]


@pytest.fixture
def aside() -> corro.Group:
    """Another group of all ranks, to say that the others may go on."""
    if corro.size() == 1:
        pytest.skip("an operation of one rank takes no time")
    return corro.new_group(range(corro.size()))


def until_inside(begun: int = 0) -> None:
    """Waits until the main thread is inside of an operation, if more than `begun` began so far."""
    main = threading.main_thread().ident
    engine = corro._context.current().engine
    while True:
        frame = sys._current_frames()[main]
        place = frame.f_code.co_name
        # A reducer also looks whether there is anything to wait for; then no generation is closed.
        lands = place == "_wait_for_sets" and frame.f_locals["self"]._landing
        waits = lands or place in ("run", "run_allreduce")
        if waits and engine.counter("ops") > begun:
            return
        time.sleep(0.001)


@pytest.fixture
def interrupted(aside: corro.Group) -> Iterator[corro.Group]:
    """As aside. Rank 0 gets a SIGINT once its main thread is inside of an operation."""
    begun = corro._context.current().engine.counter("ops")

    def interrupt() -> None:
        until_inside(begun)
        os.kill(os.getpid(), signal.SIGINT)

    if corro.rank() != 0:
        yield aside
        return
    thread = threading.Thread(target=interrupt)
    before = signal.getsignal(signal.SIGINT)
    thread.start()
    yield aside
    thread.join()
    signal.signal(signal.SIGINT, before)


def forget_what_is_done() -> None:
    """Starts more works than are looked at: each start lets go of some that are done."""
    for _ in range(8):
        cn.allreduce_async(1).wait()


def test_a_dropped_operation_keeps_its_buffers_until_it_is_done(aside: corro.Group) -> None:
    x = numpy.full(1000, float(corro.rank()))
    if corro.rank() == 0:
        held = weakref.ref(x)
        cn.allreduce_async(x, out=x)
        del x
        assert held() is not None
    corro.barrier(aside)
    if corro.rank() != 0:
        cn.allreduce(x, out=x)
    forget_what_is_done()
    if corro.rank() == 0:
        assert held() is None


def test_a_wait_lets_go_of_its_buffers_behind_a_work_that_is_stuck(aside: corro.Group) -> None:
    stuck, later = numpy.ones(10), numpy.ones(10)
    behind = corro.new_group(range(corro.size()))
    handle = None
    if corro.rank() == 0:
        handle = cn.allreduce_async(stuck, out=stuck)
    other = cn.allreduce_async(later, out=later, group=behind)
    freed = weakref.ref(later)
    if corro.rank() == 0:
        with pytest.raises(corro.TimeoutError, match="still going after 250 ms"):
            handle.wait(0.25)
    other.wait()
    del other, later
    assert freed() is None
    corro.barrier(aside)
    if corro.rank() != 0:
        handle = cn.allreduce_async(stuck, out=stuck)
    handle.wait()
    assert stuck.tolist() == [1] * 10


def test_an_interrupt_ends_the_wait_and_not_the_operation(interrupted: corro.Group) -> None:
    x = numpy.full(1000, float(corro.rank()))
    if corro.rank() == 0:
        held = weakref.ref(x)
        with pytest.raises(KeyboardInterrupt):
            cn.allreduce(x, out=x)
        del x
        assert held() is not None
    corro.barrier(interrupted)
    if corro.rank() != 0:
        assert (cn.allreduce(x, out=x) == (corro.size() - 1) / 2).all()
    forget_what_is_done()
    if corro.rank() == 0:
        assert held() is None


def test_a_handler_that_returns_lets_the_operation_go_on(interrupted: corro.Group) -> None:
    """The other ranks wait for what the handler does."""
    if corro.rank() == 0:
        signal.signal(signal.SIGINT, lambda *_: corro.barrier(interrupted))
    else:
        corro.barrier(interrupted)
    assert cn.allreduce(1, corro.Sum) == corro.size()


def stepping(count: int, zeroes: bool) -> Callable[[float], tuple[float, float]]:
    """Returns a step of an optimizer of two parameters: the least and the largest gradient."""
    used, unused = (torch.nn.Parameter(torch.zeros(count)) for _ in range(2))
    optimizer = ct.DistributedOptimizer(torch.optim.SGD([used, unused], lr=1.0))

    def gradients(factor: float) -> tuple[float, float]:
        if zeroes:
            optimizer.zero_grad()
        else:
            used.grad = unused.grad = None
        (used.sum() * factor).backward()
        optimizer.step()
        return used.grad.min().item(), used.grad.max().item()

    return gradients


def test_an_interrupted_step_leaves_the_gradients_of_the_others_alone(
    interrupted: corro.Group,
) -> None:
    gradients = stepping(1 << 20, zeroes=True)
    if corro.rank() == 0:
        with pytest.raises(KeyboardInterrupt):
            gradients(1.0)
        corro.barrier(interrupted)
    else:
        corro.barrier(interrupted)
        assert gradients(1.0) == (1.0, 1.0)
    assert gradients(10.0) == (10.0, 10.0)


def test_after_an_interrupted_step_new_gradients_do_not_meet_the_old_ones(
    interrupted: corro.Group,
) -> None:
    gradients = stepping(1 << 16, zeroes=False)
    if corro.rank() == 0:
        with pytest.raises(KeyboardInterrupt):
            gradients(1.0)
        let_go = threading.Thread(target=lambda: (until_inside(), corro.barrier(interrupted)))
        let_go.start()
    else:
        corro.barrier(interrupted)
        assert gradients(1.0) == (1.0, 1.0)
    assert gradients(10.0) == (10.0, 10.0)
    if corro.rank() == 0:
        let_go.join()


def test_step_waits_for_what_an_interrupted_backward_left(interrupted: corro.Group) -> None:
    param = torch.nn.Parameter(torch.zeros(1 << 16))
    optimizer = ct.DistributedOptimizer(torch.optim.SGD([param], lr=1.0))
    loss = param.sum() * (corro.rank() + 1)
    if corro.rank() == 0:
        with pytest.raises(KeyboardInterrupt):
            loss.backward()
        corro.barrier(interrupted)
    else:
        corro.barrier(interrupted)
        loss.backward()
    optimizer.step()
    assert (param == -(corro.size() + 1) / 2).all()


def test_an_operation_that_ends_while_a_wait_looks_up_is_no_error(aside: corro.Group) -> None:
    """A wait looks for signals every 100 ms; a busy thread makes it wait for the GIL then."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    if corro.rank() == 0:
        thread.start()
    for turn in range(15):
        corro.barrier(aside)
        if corro.rank() != 0:
            time.sleep(0.095 + turn * 0.001)
        assert cn.allreduce(1, corro.Sum) == corro.size()
    over.set()
    if corro.rank() == 0:
        thread.join()


def test_a_group_may_be_dropped_before_its_operation_is_done() -> None:
    for _ in range(300):  # More than may be alive at once.
        group = corro.new_group(numpy.arange(corro.size()))
        handle = cn.allreduce_async(1, corro.Sum, group=group)
        del group
        assert handle.wait() == corro.size()
