"""A rank that uses tables: `table_worker.py CASE`."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import corro.table

Floats = NDArray[np.float32]
DIM, KEYS, STEPS = 3, 50, 20


def drawn(rank: int, step: int) -> tuple[NDArray[np.int64], Floats]:
    """What a rank pushes in a step: ids, some of them twice, also none."""
    random = np.random.default_rng((rank, step))
    ids = random.integers(-5, KEYS, random.integers(0, 40))
    return ids, random.standard_normal((len(ids), DIM)).astype(np.float32)


def summed(ids: NDArray[np.int64], grads: Floats) -> dict[int, Floats]:
    """The gradients of each id, added up in the order of the ids."""
    sums: dict[int, Floats] = {}
    for key, grad in zip(ids.tolist(), grads, strict=True):
        sums[key] = sums[key] + grad if key in sums else grad
    return sums


def expected(start: Floats, keys: NDArray[np.int64], ranks: int) -> Floats:
    """The rows after all steps, in numpy."""
    rows = dict(zip(keys.tolist(), start.copy(), strict=True))
    for step in range(STEPS):
        total: dict[int, Floats] = {}
        for rank in range(ranks):
            for key, grad in summed(*drawn(rank, step)).items():
                total[key] = total[key] + grad if key in total else grad
        for key, grad in total.items():
            rows[key] = rows[key] - np.float32(0.5) * grad
    return np.stack([rows[key] for key in keys.tolist()])


def exact() -> None:
    """Steps of all ranks give the bits that numpy gives."""
    corro.init()
    table = corro.table.Table(
        "t",
        DIM,
        optimizer=corro.table.SGD(lr=0.5),
        initial=corro.table.Normal(0.0, 1.0),
        replicas=int(os.environ.get("REPLICAS", "1")),
    )
    keys = np.arange(-5, KEYS)
    start = table.pull(keys)
    for step in range(STEPS):
        table.push(*drawn(corro.rank(), step))
    assert (table.pull(keys) == expected(start, keys, corro.size())).all()
    assert table.steps == STEPS
    # The same table once more, and another one.
    again = corro.table.Table(
        "t",
        DIM,
        optimizer=corro.table.SGD(lr=0.5),
        initial=corro.table.Normal(0.0, 1.0),
        replicas=int(os.environ.get("REPLICAS", "1")),
    )
    other = corro.table.Table("other", 1, initial=corro.table.Constant(2.0))
    assert again.steps == STEPS
    assert (other.pull([[1], [2]]) == 2.0).all()
    print(f"exact with {corro.size()} ranks")


def ahead() -> None:
    """Rows that are asked for ahead are those that a pull gives, also where others change them."""
    corro.init()
    rank = corro.rank()
    table = corro.table.Table(
        "t", DIM, optimizer=corro.table.SGD(lr=0.5), initial=corro.table.Normal(0.0, 1.0)
    )
    keys = np.arange(-5, KEYS)
    start = table.pull(keys)
    for step in range(STEPS):
        next_ids = drawn(rank, step + 1)[0]
        table.prefetch(next_ids)
        table.prefetch(keys[:7])
        table.push(*drawn(rank, step))
        assert (table.pull(next_ids) == table.pull(next_ids)).all()
        assert (table.pull(keys[:7]) == table.pull(keys)[:7]).all()
    assert (table.pull(keys) == expected(start, keys, corro.size())).all()
    print(f"ahead with {corro.size()} ranks")


def bounded() -> None:
    """A rank goes on that is ahead of another one, and no further than it may."""
    corro.init()
    rank = corro.rank()
    table = corro.table.Table(
        "t",
        DIM,
        optimizer=corro.table.SGD(lr=0.5),
        initial=corro.table.Normal(0.0, 1.0),
        mode="bounded",
        staleness=3,
    )
    keys = np.arange(-5, KEYS)
    start = table.pull(keys)
    if rank == 0:  # Nobody else has pushed yet.
        for step in range(3):
            table.push(*drawn(rank, step))
        assert table.steps == 0
        assert (table.pull(keys) == start).all()
    corro.barrier()
    for step in range(3 if rank == 0 else 0, STEPS):
        table.push(*drawn(rank, step))
        assert step - 2 <= table.steps <= step + 1
    table.wait()
    assert table.steps == STEPS
    assert (table.pull(keys) == expected(start, keys, corro.size())).all()
    print(f"bounded with {corro.size()} ranks")


def asynchronous() -> None:
    """Ranks push as often as they like, each push counts once, and a server is killed meanwhile."""
    corro.init()
    rank, ranks = corro.rank(), corro.size()
    sgd = corro.table.SGD(lr=1.0)
    table = corro.table.Table("t", 1, optimizer=sgd, mode="async", staleness=4)
    for step in range(STEPS * (1 + rank)):
        if step == 7 and rank == 1:
            os.kill(server_process(1), signal.SIGKILL)
        table.push([0, 1 + rank, 1 + rank], [[1.0], [1.0], [1.0]])
        own = -table.pull([1 + rank])[0, 0] / 2
        assert step - 3 <= own <= step + 1
    table.wait()
    corro.barrier()
    pushes = sum(STEPS * (1 + one) for one in range(ranks))
    assert table.pull([0])[0, 0] == -pushes
    assert table.steps == STEPS * (1 + rank)
    print(f"asynchronous with {ranks} ranks")


def late_end() -> None:
    """Rank 1 does not push, and rank 0 ends before that is known."""
    corro.init()
    table = corro.table.Table("t", DIM, mode="bounded", staleness=1)
    if corro.rank() == 0:
        table.push([1], np.ones((1, DIM)))
        print("rank 0 is through", flush=True)


def late_later() -> None:
    """Rank 1 does not push, which rank 0 is told by a later call."""
    corro.init()
    table = corro.table.Table("t", DIM, mode="bounded", staleness=1)
    if corro.rank() == 0:
        table.push([1], np.ones((1, DIM)))
        try:
            while True:
                table.pull([1])
                time.sleep(0.05)
        except corro.TimeoutError as error:
            print(f"later: {error}")
    corro.barrier(timeout=60.0)


def late() -> None:
    """Rank 1 does not push."""
    corro.init()
    table = corro.table.Table("t", DIM)
    if corro.rank() == 0:
        try:
            table.push([1], np.ones((1, DIM)))
        except corro.TimeoutError as error:
            print(f"late: {error}")
    corro.barrier(timeout=60.0)


def differing() -> None:
    """Ranks make a table otherwise, and push with other rates."""
    corro.init()
    rank = corro.rank()
    if rank == 0:
        table = corro.table.Table("t", DIM)
    corro.barrier()
    if rank == 1:
        try:
            corro.table.Table("t", DIM + 1)
        except corro.InvalidArgumentError as error:
            print(f"differing: {error}")
        table = corro.table.Table("t", DIM)
        table.lr = 2.0
    try:
        table.push([], np.ones((0, DIM)))
    except corro.InvalidArgumentError as error:
        print(f"differing: {error}")


def survives() -> None:
    """A server is killed between steps, and no row is lost."""
    corro.init()
    table = corro.table.Table(
        "t", DIM, optimizer=corro.table.SGD(lr=0.5), initial=corro.table.Normal(0.0, 1.0)
    )
    keys = np.arange(-5, KEYS)
    start = table.pull(keys)
    for step in range(STEPS):
        if step == 7 and corro.rank() == 1:
            os.kill(server_process(1), signal.SIGKILL)
        table.push(*drawn(corro.rank(), step))
    assert (table.pull(keys) == expected(start, keys, corro.size())).all()
    print(f"survives with {corro.size()} ranks")


def replaced() -> None:
    """A server is killed, its rows are copied, and then the one that had the other copy is, too."""
    corro.init()
    table = corro.table.Table(
        "t", DIM, optimizer=corro.table.SGD(lr=0.5), initial=corro.table.Normal(0.0, 1.0)
    )
    keys = np.arange(-5, KEYS)
    start = table.pull(keys)
    for step in range(STEPS):
        if step in (5, 12):
            corro.barrier()
            if corro.rank() == 1:
                os.kill(server_process(0 if step == 5 else 1), signal.SIGKILL)
            push_until_copied(table)
        table.push(*drawn(corro.rank(), step))
    assert (table.pull(keys) == expected(start, keys, corro.size())).all()
    print(f"replaced with {corro.size()} ranks")


def push_until_copied(table: corro.table.Table) -> None:
    """Pushes nothing until a server was lost, and all rows are on two servers again."""
    end = time.monotonic() + 60
    for copies in (1, 2):
        while True:
            table.push([], np.ones((0, DIM)))
            if corro.broadcast_object(table.copies, root_rank=0) == copies:
                break
            assert time.monotonic() < end
            time.sleep(0.05)


def lost() -> None:
    """A server is killed that alone had some rows; ranks are told, and go on."""
    corro.init()
    table = corro.table.Table("t", DIM, replicas=0)
    table.push([1], np.ones((1, DIM)))
    corro.barrier()
    if corro.rank() == 0:
        os.kill(server_process(1), signal.SIGKILL)
    corro.barrier()
    try:
        while True:
            table.push(range(100), np.ones((100, DIM)))
    except corro.UnavailableError as error:
        print(f"lost: {error}")
    corro.barrier()
    print(f"goes on: rank {corro.rank()}")


def interrupted() -> None:
    """Ctrl-C ends a push that waits."""
    corro.init()
    table = corro.table.Table("t", DIM)
    if corro.rank() == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        try:
            table.push([1], np.ones((1, DIM)))
        except KeyboardInterrupt:
            print("interrupted")
    corro.barrier(timeout=60.0)


def started() -> tuple[int, int, corro.table.Table]:
    """Rank, size and a table without copies after one step, in a program that needs no engine.

    All ranks have taken the step: one that ends takes rows with it that another one's push needs.
    """
    rank, size = int(os.environ["CORRO_RANK"]), int(os.environ["CORRO_SIZE"])
    table = corro.table.Table("t", DIM, optimizer=corro.table.SGD(lr=1.0), replicas=0)
    table.push(range(100), np.full((100, DIM), 1.0 + rank))
    pushed = [Path(f"{os.environ['CORRO_JOB_ID']}-{one}-pushed") for one in range(size)]
    pushed[rank].touch()
    while not all(path.exists() for path in pushed):
        time.sleep(0.01)
    return rank, size, table


def ends_early() -> None:
    """Rank 1 is through, and rank 0 still pulls what lies there."""
    rank, size, table = started()
    said = Path(os.environ["FOLDER"]) / "rank-1-ends"
    if rank == 1:
        atexit.register(said.touch)  # Before what was registered earlier.
        return
    while rank == 0 and not said.exists():
        time.sleep(0.01)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        assert (table.pull(range(100)) == -size * (size + 1) / 2).all()
    print(f"rank {rank} pulls")


def ends_without_a_word() -> None:
    """Rank 1 ends in its own way, and nobody waits for it."""
    rank, _, _ = started()
    if rank == 1:
        os._exit(0)
    print(f"rank {rank} is through")


def fails() -> None:
    """Rank 1 fails while others would need its rows."""
    rank, _, table = started()
    if rank == 1:
        raise ValueError("a fault of the user's")
    table.push([1], np.ones((1, DIM)))


def exits() -> None:
    """Rank 1 ends with a status, which its own process does not know before it is over."""
    rank, _, table = started()
    if rank == 1:
        sys.exit(3)
    table.push([1], np.ones((1, DIM)))


def leaves_a_collective() -> None:
    """Rank 1 ends while rank 0 waits for it in a collective."""
    corro.init()
    rank, _, _ = started()
    if rank == 1:
        sys.exit(3)
    try:
        corro.barrier()
    except corro.RankLostError as error:
        print(f"told: {error}")
        raise


def killed() -> None:
    """Rank 1 is killed with its rows."""
    rank, _, table = started()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    table.push([1], np.ones((1, DIM)))


def makes_none() -> None:
    """Rank 1 makes no table, and therefore keeps no rows; once it does, all is well."""
    corro.init(join_timeout=60.0)
    if corro.rank() == 0:
        try:
            corro.table.Table("t", DIM)
        except corro.TimeoutError as error:
            print(f"none: {error}")
    corro.barrier(timeout=60.0)
    rank, size, table = started()
    assert (table.pull(range(100)) == -size * (size + 1) / 2).all()
    print(f"rank {rank} has its table")


def child_ends() -> None:
    """A child that ends as a program does leaves the parent's server alone."""
    rank, size, table = started()
    if (child := os.fork()) == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (table.pull(range(100)) == -size * (size + 1) / 2).all()
    print(f"rank {rank} has its table")


def forked() -> None:
    """A child has no tables."""
    table = corro.table.Table("t", DIM)
    if (child := os.fork()) == 0:
        try:
            table.pull([1])
        except corro.FailedPreconditionError as error:
            print(f"forked: {error}", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    assert table.pull([1]).shape == (1, DIM)


def server_process(index: int) -> int:
    """The pid of a server of this job: of the same agent as this process."""
    wanted = f"CORRO_SERVER={index}".encode()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for path in Path("/proc").glob("[0-9]*"):
            try:
                environment = (path / "environ").read_bytes().split(b"\0")
                parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if wanted in environment and parent == os.getppid():
                return int(path.name)
        time.sleep(0.1)
    raise AssertionError(f"there is no server {index}")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
