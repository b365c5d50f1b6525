"""Disturbs an elastic job for minutes, and proves that it has lost nothing.

    soak.py [--seconds 300] [--every 10,20] [--seed N]

What ranks did with each sample is in their files; the checker of histories.py reads it. Ends with
one line: `steps` were begun, `committed` applied; `lost` were applied and done again, samples came
in no step or in two. `goodput`: the part of the time that the committed steps would have taken
without a fault.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import chaos
from histories import Applied, Counts, Event, Taken, count, mistakes

WORKER = Path(__file__).with_name("soak_worker.py")
SAMPLES = 1000
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108


def read(folder: Path) -> tuple[list[Event], list[list[int]], int]:
    """Returns what was done, when steps were applied by each member, and the number of data epochs.

    A line that a member was writing when it was killed has no end.
    """
    history: list[Event] = []
    times: list[list[int]] = []
    data_epochs = 0
    for member, path in enumerate(sorted(folder.glob("*.txt"))):
        applied = []
        for line in path.read_text().splitlines(keepends=True):
            word, *rest = line.split()
            if not line.endswith("\n"):
                continue
            if word == "takes":
                step, epoch, rank, ranks, data_epoch = map(int, rest[:5])
                history.append(
                    Taken(
                        member=member, epoch=epoch, rank=rank, ranks=ranks, step=step,
                        data_epoch=data_epoch, samples=tuple(map(int, rest[6:])),
                        weight=float(rest[5]),
                    )
                )  # fmt: skip
            elif word == "applied":
                history.append(Applied(member=member, epoch=int(rest[1]), step=int(rest[0])))
                applied.append(int(rest[2]))
            else:
                data_epochs = max(data_epochs, int(rest[1]))
        times.append(applied)
    return history, times, data_epochs


def goodput(times: list[list[int]], committed: int) -> float:
    gaps = [after - before for member in times for before, after in pairwise(member)]
    begun, ended = min(map(min, filter(None, times))), max(map(max, filter(None, times)))
    return committed * statistics.median(gaps) / (ended - begun)


def leaks(mark: chaos.Chaos, before: set[str]) -> list[str]:
    """What a job has left behind."""
    left = [f"process {rank.pid}" for rank in mark.ranks()]
    return left + sorted({path.name for path in SHARED_MEMORY.iterdir()} - before)


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--every", default="10,20", help="seconds between two faults")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    low, high = map(float, options.every.split(","))
    print(f"soak: --seed {options.seed}")
    before = {path.name for path in SHARED_MEMORY.iterdir()}
    with tempfile.TemporaryDirectory(prefix="corro-soak-") as name:
        folder = Path(name)
        program = [sys.executable, str(WORKER), name, str(SAMPLES)]
        with chaos.Chaos(program, folder, seed=options.seed) as job:
            job.disturb(low, (low, low))  # All ranks have begun.
            files = descriptors(job.job.pid)
            job.disturb(options.seconds - low, (low, high))
            grown = descriptors(job.job.pid) - files if job.job.poll() is None else 0
            (folder / "enough").touch()
            status = job.job.wait(chaos.END)
        wrong = [] if status == 0 else [f"the job has ended with status {status}"]
        # A rank has four descriptors in the launcher, and there may be one more than at first.
        wrong += [f"the launcher has {grown} descriptors more"] if grown > 4 else []
        wrong += [f"left behind: {one}" for one in leaks(job, before)]
        history, times, data_epochs = read(folder)
        counts = count(history, SAMPLES, data_epochs)
        wrong += mistakes(history, SAMPLES, data_epochs)
    for line in wrong[:20]:
        print(f"soak: {line}")
    print(describe(counts, job.faults, goodput(times, counts.committed)))
    return 1 if wrong else 0


def describe(counts: Counts, faults: int, part: float) -> str:
    return (
        f"soak: steps={counts.begun} committed={counts.committed} lost={counts.lost} "
        f"samples_lost={counts.samples_lost} samples_twice={counts.samples_twice} "
        f"faults={faults} goodput={part:.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
