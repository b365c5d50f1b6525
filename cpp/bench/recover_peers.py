"""Jobs of the rows `recover` of others: torchrun, and torchft where its environment is there.

Each is set up as its documentation has it. `order` is what a worker is told besides its folder.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jobs import BENCH, OUT, PYTHON
from processes import PATIENCE, end_all, free_ports, says, started, wait_until
from recover_history import History

RANKS = 3
RECOVERY = 120  # Seconds from the signal to the job's end: torchrun's Gloo waits half an hour.
TORCHFT = OUT / "torchft/bin"

Process = subprocess.Popen[bytes]


def agent(programs: Path, ranks: int, worker: str, folder: Path, order: Sequence[str]) -> list[str]:
    options = ["--standalone", "--nproc-per-node", str(ranks), "--max-restarts", "10"]
    job = [str(BENCH / worker), str(folder), *order]
    return [str(programs / "torchrun"), *options, *job]


def wait_for_end(jobs: Sequence[Process], folder: Path) -> None:
    """Without a signal there is no recovery, and the job has its whole time."""

    def have_ended() -> bool:
        return all(job.poll() is not None for job in jobs)

    wait_until(lambda: have_ended() or (folder / "fate").exists(), PATIENCE)
    wait_until(have_ended, RECOVERY)


def torchrun(folder: Path, order: Sequence[str]) -> None:
    """All ranks start again, from a checkpoint.

    By default ranks that start again find the addresses of those before them in the store, and
    mostly fail to connect until no restart is left (pytorch issue 135712, which has this variable).
    """
    command = agent(PYTHON.parent, RANKS, "recover_torchrun.py", folder, order)
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with ExitStack() as stack:
        stack.callback(end_all, str(folder))
        job = stack.enter_context(started(command, folder / "log", **own_store))
        wait_for_end([job], folder)


@contextmanager
def lighthouse(folder: Path) -> Iterator[str]:
    """The coordinator of torchft, with its README's options; its address."""
    [port] = free_ports(1)
    options = ["--min_replicas", "2", "--quorum_tick_ms", "100", "--join_timeout_ms", "10000"]
    command = [str(TORCHFT / "torchft_lighthouse"), "--bind", f"[::]:{port}", *options]
    with started(command, folder / "lighthouse"):
        says(folder / "lighthouse", "listening on")
        yield f"http://localhost:{port}"


@contextmanager
def torchft_job(
    folder: Path, order: Sequence[str], groups: int
) -> Iterator[Callable[[int], Process]]:
    """What starts a replica group: a torchrun, which starts its one rank again where it is lost.

    `groups` is how many wait for each other.
    """
    with ExitStack() as stack:
        stack.callback(end_all, str(folder))
        shared = {"TORCHFT_LIGHTHOUSE": stack.enter_context(lighthouse(folder))}
        shared["NUM_REPLICA_GROUPS"] = str(groups)
        command = agent(TORCHFT, 1, "recover_torchft.py", folder, order)

        def start(number: int) -> Process:
            own = {"REPLICA_GROUP_ID": str(number)}
            return stack.enter_context(started(command, folder / "log", **shared, **own))

        yield start


def torchft(folder: Path, order: Sequence[str]) -> None:
    """The two others go on; the third, started again, joins them if it is in time."""
    with torchft_job(folder, order, RANKS) as start:
        groups = [start(number) for number in range(RANKS)]
        wait_for_end([group for number, group in enumerate(groups) if number != 1], folder)


def torchft_join(folder: Path, order: Sequence[str]) -> None:
    """A third group comes to two that train; it is not waited for, since it may come too late."""
    with torchft_job(folder, order, RANKS - 1) as start:
        groups = [start(number) for number in range(RANKS - 1)]
        wait_until(lambda: any(History.read(folder).steps), PATIENCE)
        start(RANKS - 1)
        wait_for_end(groups, folder)


def has_torchft() -> bool:
    return (TORCHFT / "torchft_lighthouse").is_file()
