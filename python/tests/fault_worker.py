"""One rank of fault_jobs.py: `python fault_worker.py SCENARIO`. Prints one JSON line and exits 0.

The faults are the point, so the ranks run without a launcher that would stop the survivors.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import numpy
from plans import summing

import corro
import corro.numpy
from corro import _context

VICTIM = 1


def say(**facts: object) -> None:
    print(json.dumps({"rank": corro.rank(), **facts}), flush=True)


def until(true: Callable[[], bool]) -> bool:
    """Waits for it; False if that takes half a minute."""
    end = time.monotonic() + 30
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def meet() -> None:
    """Returns when nobody waits for the victim, where the test calls Job.let_victim_go().

    The victim may have its sum while what the others need of it is still on its way.
    """
    corro.numpy.allreduce(numpy.ones(4))
    say(met=True)
    if corro.rank() == VICTIM:
        sys.stdin.readline()


def failure_of_next(data: numpy.ndarray) -> dict[str, object]:
    """Calls until something fails and returns what the error says."""
    try:
        while True:
            corro.numpy.allreduce(data)
    except corro.CorroError as error:
        return {
            "error": type(error).__name__,
            "message": str(error),
            "culprit": getattr(error, "rank", None),
            "op": getattr(error, "op", None),
            "phase": getattr(error, "phase", None),
            "at": time.monotonic(),
        }


def killed_with_forked_children() -> None:
    """Two forked data-loader workers outlive the victim and hold copies of its descriptors."""
    meet()
    if corro.rank() == VICTIM:
        children = []
        for _ in range(2):
            children.append(os.fork())
            if children[-1] == 0:
                time.sleep(60)  # The test ends it; a bound, should the test be gone.
                os._exit(0)
        say(killed_at=time.monotonic(), children=children)
        os.kill(os.getpid(), signal.SIGKILL)
    say(**failure_of_next(numpy.ones(100_000)))


def stopped_inside_an_arena() -> None:
    """The victim stops itself inside; the other uses its array for something else meanwhile."""
    arena = _context.current().engine.alloc(256 << 20)
    data = numpy.frombuffer(arena, dtype=numpy.float32)
    data[:] = 1
    corro.numpy.allreduce(data[:1])
    if corro.rank() == VICTIM:
        inside = threading.Event()

        def stop() -> None:
            inside.wait()
            os.kill(os.getpid(), signal.SIGSTOP)

        threading.Thread(target=stop).start()
        inside.set()
        try:
            corro.numpy.allreduce(data, out=data)
            return say(error=None)
        except corro.CorroError as error:
            return say(error=type(error).__name__)
    try:
        corro.numpy.allreduce(data, out=data)
    except corro.CorroError as error:
        data[:] = -7
        say(error=type(error).__name__)
    sys.stdin.readline()  # The victim has gone on, and is done.
    say(overwritten=int((data != -7).sum()))


def stopped() -> None:
    meet()
    if corro.rank() == VICTIM:
        os.kill(os.getpid(), signal.SIGSTOP)
    say(**failure_of_next(numpy.ones(4)))


def stopped_inside() -> None:
    """With more on its way than sockets hold; the others wait in the same operation."""
    meet()
    data = numpy.ones(8 << 20)
    if corro.rank() == VICTIM:
        started = corro.numpy.allreduce_async(data)
        os.kill(os.getpid(), signal.SIGSTOP)
        started.wait()
    say(**failure_of_next(data))


LATE = 60  # Seconds: more than any deadline of a kernel that a data connection may not have.


def late_to_one() -> None:
    """One rank computes for long while the others are in an allreduce of 4 MiB."""
    if corro.rank() == VICTIM:
        time.sleep(LATE)
    say(total=float(corro.numpy.allreduce(numpy.ones(1 << 19), op=corro.Sum).sum()))


def late_to_many() -> None:
    """The same with eight asynchronous ones of 8 MiB."""
    if corro.rank() == VICTIM:
        time.sleep(LATE)
    data = [numpy.ones(1 << 20) for _ in range(8)]
    handles = [corro.numpy.allreduce_async(each, op=corro.Sum) for each in data]
    say(total=sum(float(handle.wait().sum()) for handle in handles))


def late_to_broadcast() -> None:
    """The same with 32 MiB from one to all."""
    if corro.rank() == VICTIM:
        time.sleep(LATE)
    say(total=float(corro.numpy.broadcast(numpy.ones(1 << 22), root_rank=0).sum()))


def stopped_and_continued() -> None:
    """One rank is stopped with more on its way to it than sockets hold; the test continues it."""
    meet()
    if corro.rank() == VICTIM:
        os.kill(os.getpid(), signal.SIGSTOP)
    say(total=float(corro.numpy.broadcast(numpy.ones(1 << 22), root_rank=0).sum()))


def starved() -> None:
    """32 MiB at a time, while the test's own busy processes have the core."""
    data = numpy.ones(8 << 20, numpy.float32)
    for _ in range(5):
        total = corro.numpy.allreduce(data, corro.Sum).sum(dtype=numpy.float64)
    lost = _context.current().engine.counter("ranks_lost")
    say(total=float(total), ranks_lost=lost)


def killed_while_others_rest() -> None:
    """Nobody is in an operation when a rank dies; the survivors come back later."""
    meet()
    if corro.rank() == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()  # The test closes it once the victim is gone.
    noticed = until(lambda: _context.current().engine.counter("ranks_lost") == 1)
    say(noticed=noticed, **failure_of_next(numpy.ones(4)))


def mismatch() -> None:
    """One rank comes with another shape; afterwards the group works."""
    try:
        shape = (3, 2) if corro.rank() == VICTIM else (2, 3)
        corro.numpy.allreduce(numpy.ones(shape), op=corro.Sum)
        say(error=None)
    except corro.CorroError as error:
        corro.barrier()
        total = corro.numpy.allreduce(numpy.ones(3), op=corro.Sum)
        say(error=type(error).__name__, message=str(error), after=total.tolist())


def counted_until_killed() -> None:
    """Rank 0 is killed by a timer, wherever it is then; the others count what has succeeded."""
    if corro.rank() == 0:
        for _ in range(20):
            corro.numpy.broadcast(numpy.ones(4), root_rank=0)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
    done = 0
    try:
        while True:
            corro.numpy.broadcast(numpy.ones(4), root_rank=0)
            done += 1
    except corro.CorroError as error:
        say(error=type(error).__name__, culprit=getattr(error, "rank", None), done=done)


def killed_inside_a_plan() -> None:
    """The survivors load the plan of those that are left, and go on from where all are."""
    sums: dict[int, int] = {}
    repeated: list[int] = []

    def fill(firing: corro.Firing) -> None:
        if corro.rank() == VICTIM and firing.micro == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        firing.outputs[0].cast("q")[0] = firing.micro * 10 + corro.rank()

    def take(firing: corro.Firing) -> None:
        sums[firing.micro] = firing.inputs[0].cast("q")[0]
        if firing.repeats:
            repeated.append(firing.micro)

    loaded = corro.load_plan(summing(corro.size()))
    try:
        loaded.run(1000, {f"fill{corro.rank()}": fill, f"take{corro.rank()}": take})
    except corro.CorroError as error:
        failure = {"error": type(error).__name__, "message": str(error), "culprit": error.rank}
    before = loaded.completed
    group = corro.new_group([0, 2])
    place = group.rank()
    with corro.load_plan(summing(group.size()), group, after=loaded) as rest:
        first = rest.completed
        rest.run(10, {f"fill{place}": fill, f"take{place}": take})
    say(**failure, before=before, first=first, sums=[sums[m] for m in range(10)], repeated=repeated)


def used_in_child() -> None:
    """In a forked child every call raises; the parent goes on."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        try:
            corro.numpy.allreduce(numpy.ones(4))
            os.write(write_end, b"no error")
        except corro.CorroError as error:
            os.write(write_end, type(error).__name__.encode())
        os._exit(0)
    os.wait()
    corro.barrier()
    say(child=os.read(read_end, 100).decode())


def leaves_nothing() -> None:
    """Starting and stopping the engine again and again leaks neither descriptors nor threads."""
    counts = []
    for _ in range(5):
        kept = corro.numpy.empty(4)
        kept[:] = rank = corro.rank()
        corro.numpy.allreduce(kept)
        corro.shutdown()
        assert kept.tolist() == [rank] * 4, "arena memory outlives its engine"
        del kept
        counts.append((len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))))
        corro.init()
    say(counts=counts)


def adds() -> None:
    """Sums of several sizes, and what the engine has counted."""
    sums = []
    for count in (1, 1000, 300_000):
        data = numpy.arange(count) + corro.rank()
        sums.append(int(corro.numpy.allreduce(data, op=corro.Sum).sum()))
    engine = _context.current().engine
    names = ("ops", "failures", "messages_sent", "messages_received")
    counters = {name: engine.counter(name) for name in names}
    say(sums=sums, counters=counters, refused=engine.counter("handshakes_refused"))


if __name__ == "__main__":
    corro.init()
    globals()[sys.argv[1]]()
