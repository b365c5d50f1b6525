"""Starts an elastic job, and kills, stops, adds and removes ranks of it at random.

    chaos.py [--seconds 120] [--every 10,20] [--seed N] [--np 3] [--most 4] -- PROGRAM...

The job has the slots of one host, and a discovery that chaos writes. Each fault is a line. At least
one rank that has been there for a while is left alone, since a job whose last rank is killed is
over. Ends with the job's status.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

SETTLED = 12.0  # Seconds; who is older has joined.
LEAST = 2  # Slots.
END = 180.0  # Seconds, for a job that is to end.
MARK = "CORRO_TEST_CHAOS"  # A variable by which the ranks of a job are known.


@dataclass(frozen=True)
class Rank:
    """A process of the job that can be a member."""

    pid: int
    parent: int
    place: int
    age: float  # Seconds.
    stopped: bool


def read_rank(folder: Path, mark: str) -> Rank | None:
    """Returns the process of a folder of /proc, if it is a rank of the job."""
    try:
        environment = dict(
            pair.split("=", 1)
            for pair in (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            if "=" in pair
        )
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # It has ended, or is somebody else's.
        return None
    if environment.get(MARK) != mark or "CORRO_MEMBER_UUID" not in environment:
        return None
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    age = uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    place = int(environment["CORRO_RANK"])
    return Rank(int(folder.name), int(fields[1]), place, age, stopped=fields[0] == "T")


class Chaos:
    """A job, and what is done to it; the job is ended at the end of the block."""

    def __init__(
        self,
        program: list[str],
        folder: Path,
        *,
        ranks: int = 3,
        most: int = 4,
        seed: int = 0,
    ) -> None:
        self.faults = 0
        self._mark = uuid.uuid4().hex
        self._random = random.Random(seed)
        self._hosts = folder / "hosts"
        self._slots, self._most = ranks, most
        self._list_slots()
        corro = Path(sys.executable).with_name("corro")
        options = ["-np", str(ranks), "--min-np", "1", "--max-np", str(most)]
        options += ["--host-discovery", f"cat {self._hosts}", "--back-off", "1s,5s"]
        self.job = subprocess.Popen(
            [corro, "run", *options, "--log-dir", folder / "logs", *program],
            env={**os.environ, MARK: self._mark},
            start_new_session=True,
        )
        self._begun = time.monotonic()

    def ranks(self) -> list[Rank]:
        """Returns the processes that there are, without those that ranks have started."""
        folders = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
        found = [rank for path in folders if (rank := read_rank(path, self._mark)) is not None]
        pids = {rank.pid for rank in found}
        return [rank for rank in found if rank.parent not in pids]

    def disturb(self, seconds: float, every: tuple[float, float]) -> None:
        """Brings about a fault now and then, until the time is over or the job has ended."""
        until = time.monotonic() + seconds
        while self._waits(min(self._random.uniform(*every), until - time.monotonic())):
            if time.monotonic() >= until:
                return
            self._random.choice([self._kill, self._kill, self._stop, self._add, self._remove])()

    def _waits(self, seconds: float) -> bool:
        """Returns whether the job still runs after this time."""
        try:
            self.job.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return True
        return False

    def _kill(self) -> None:
        self._send(signal.SIGKILL)

    def _stop(self) -> None:
        self._send(signal.SIGSTOP)

    def _send(self, sent: signal.Signals) -> None:
        ranks = self.ranks()
        settled = [rank for rank in ranks if rank.age > SETTLED and not rank.stopped]
        if not settled:
            return
        spared = self._random.choice(settled)
        victims = [rank for rank in ranks if rank != spared]
        if not victims:
            return
        victim = self._random.choice(victims)
        try:
            os.kill(victim.pid, sent)
        except ProcessLookupError:
            return
        self._note(f"rank {victim.place} (pid {victim.pid}) gets {sent.name}")

    def _add(self) -> None:
        self._resize(self._slots + 1)

    def _remove(self) -> None:
        self._resize(self._slots - 1)

    def _resize(self, slots: int) -> None:
        slots = min(max(slots, LEAST), self._most)
        if slots == self._slots:
            return
        self._note(f"{self._slots} slots become {slots}")
        self._slots = slots
        self._list_slots()

    def _list_slots(self) -> None:
        listed = self._hosts.with_suffix(".new")
        listed.write_text(f"localhost:{self._slots}\n")
        listed.rename(self._hosts)

    def _note(self, text: str) -> None:
        self.faults += 1
        print(f"chaos: {time.monotonic() - self._begun:.1f} s: {text}", flush=True)

    def __enter__(self) -> Chaos:
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves no process of the job."""
        if self.job.poll() is None:
            os.killpg(self.job.pid, signal.SIGTERM)
            if self._waits(10):
                os.killpg(self.job.pid, signal.SIGKILL)
                self.job.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--every", default="10,20", help="seconds between two faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--np", type=int, default=3)
    parser.add_argument("--most", type=int, default=4)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    low, _, high = options.every.partition(",")
    with (
        tempfile.TemporaryDirectory(prefix="corro-chaos-") as name,
        Chaos(
            options.program, Path(name), ranks=options.np, most=options.most, seed=options.seed
        ) as chaos,
    ):
        chaos.disturb(options.seconds, (float(low), float(high or low)))
        print(f"chaos: {chaos.faults} faults", flush=True)
        return chaos.job.wait()


if __name__ == "__main__":
    sys.exit(main())
