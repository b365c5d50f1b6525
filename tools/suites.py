"""Runs suites, side by side where they need not be alone, and leaves out what has passed.

A suite is a program of its own: a gtest program, pytest on one file, a step of CI. What passed
before with the same inputs is one line (passed.py). What fails shows all that it printed. It is
remembered how many processors a suite has kept busy, so that none computes beside others that do
(side_by_side.py); of one that is new it is not known, and it counts as Suite.busy.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from passed import (
    ROOT,
    Digests,
    Memory,
    Suite,
    Watch,
    facts,
    file_clock_ns,
    memory_folder,
    runs_all,
    watched_folders,
)
from side_by_side import Job, run_side_by_side

DRAIN_EVERY_S = 0.2
# In the note of what passed: why tests were left out, how long it took, and how many processors it
# has kept busy, on average.
SKIPS, TOOK, BUSY = "skips", "took", "busy"


@dataclass(frozen=True)
class Outcome:
    suite: Suite
    status: int  # Of the program; 0 for what passed before.
    seconds: float
    note: dict[str, str]  # What the caller wants to be remembered of it.
    before: bool = False  # It passed before, and was not run.


# Called with what a program has printed and its exit status; returns the status that counts and
# the note.
Judge = Callable[[Suite, int, str], tuple[int, dict[str, str]]]


def memory(root: Path = ROOT) -> Memory:
    return Memory(memory_folder(), facts(os.environ), Digests(root), runs_all())


@dataclass(frozen=True)
class Ended:
    status: int  # 124: it took too long.
    output: str
    seconds: float
    processor_s: float  # Of all its processes that were waited for.


def run_program(suite: Suite) -> Ended:
    """Runs the suite's program to its end."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            suite.command,
            cwd=suite.folder,
            env=os.environ | dict(suite.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        is_late = not ends_within(process.pid, suite.timeout)
        if is_late:
            os.killpg(process.pid, signal.SIGKILL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = 124 if is_late else os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read() + (f"\nended after {suite.timeout:.0f} s" if is_late else "")
    took = time.monotonic() - started
    return Ended(process.returncode, said, took, used.ru_utime + used.ru_stime)


def ends_within(pid: int, seconds: float) -> bool:
    end = os.pidfd_open(pid)
    try:
        return bool(select.select([end], [], [], seconds)[0])
    finally:
        os.close(end)


def judge_by_status(suite: Suite, status: int, output: str) -> tuple[int, dict[str, str]]:
    del suite, output
    return status, {}


class Runner:
    """Runs suites and keeps what came out. One thread calls run().

    The memory reads inputs to compare them, which looks as if suites did. So it is asked before the
    first suite starts, and told when none runs.
    """

    def __init__(self, memory: Memory, watch: Watch, judge: Judge = judge_by_status) -> None:
        self._memory = memory
        self._watch = watch
        self._judge = judge
        self._print = threading.Lock()
        self._new: list[tuple[Suite, set[str], int, dict[str, str]]] = []
        memory.keep_listings(watch.folders())

    def run(self, suites: Sequence[Suite], processors: int) -> list[Outcome]:
        """One kind after the other, of each the longest first, so that no core is idle at the end;
        at last, one by one, those that are to be alone. What never passed comes first."""
        done = [outcome for outcome in map(self._passed_before, suites) if outcome]
        known = {id(outcome.suite) for outcome in done}
        left = [suite for suite in suites if id(suite) not in known]
        left.sort(key=self._seconds, reverse=True)
        over = threading.Event()
        drainer = threading.Thread(target=self._drain_until, args=(over,))
        drainer.start()
        try:
            for kind in dict.fromkeys(suite.kind for suite in suites):
                together = [each for each in left if each.kind == kind and not each.alone]
                jobs = [self._job(each) for each in together]
                done += run_side_by_side(jobs, processors, idle=self._remember)
                self._remember()
            for suite in left:
                if suite.alone:
                    done.append(self._one(suite))
                    self._remember()
        finally:
            over.set()
            drainer.join()
            self._remember()
        if self._watch.missed:
            self._say(f"what passed is not remembered: {self._watch.missed}")
        return done

    def _seconds(self, suite: Suite) -> float:
        return float(self._memory.newest_note(suite).get(TOOK, "inf"))

    def _busy(self, suite: Suite, default: float) -> float:
        return float(self._memory.newest_note(suite).get(BUSY, default))

    def _job(self, suite: Suite) -> Job[Outcome]:
        return Job(self._busy(suite, suite.busy), lambda: self._one(suite))

    def _drain_until(self, over: threading.Event) -> None:
        while not over.wait(DRAIN_EVERY_S):
            self._watch.drain()

    def _passed_before(self, suite: Suite) -> Outcome | None:
        note = self._memory.find(suite)
        if note is None:
            return None
        self._say(
            f"not run: {suite.name}: passed before with the same inputs",
            *note.get(SKIPS, "").splitlines(),
        )
        return Outcome(suite, 0, 0, note, before=True)

    def _one(self, suite: Suite) -> Outcome:
        opened = self._watch.start()
        started_ns = file_clock_ns()
        ended = run_program(suite)
        read = self._watch.stop(opened)
        status, note = self._judge(suite, ended.status, ended.output)
        if status == 0:
            skips = skip_reasons(ended.output)
            note = self._usage(suite, ended) | note | ({SKIPS: "\n".join(skips)} if skips else {})
            self._say(f"passed {ended.seconds:6.1f} s  {suite.name}", *skips)
            if read is not None:
                self._new.append((suite, read, started_ns, note))
        else:
            line = f"FAILED {ended.seconds:6.1f} s  {suite.name} (status {status})"
            self._say(line, ended.output)
        return Outcome(suite, status, ended.seconds, note)

    def _usage(self, suite: Suite, ended: Ended) -> dict[str, str]:
        """Beside others it keeps fewer processors busy than it would: what counts is the most."""
        busy = max(self._busy(suite, 0), ended.processor_s / ended.seconds)
        return {TOOK: f"{ended.seconds:.1f}", BUSY: f"{busy:.2f}"}

    def _remember(self) -> None:
        for suite, read, started_ns, note in self._new:
            self._memory.add(suite, read, started_ns, note)
        self._new.clear()

    def _say(self, *lines: str) -> None:
        with self._print:
            print(*lines, sep="\n", flush=True)


# What pytest says with -rs; gtest says the reason above the test's name.
SKIPPED = re.compile(r"^SKIPPED .*$|^(?P<why>.*)\n\[  SKIPPED \] (?P<test>\S+) \(", re.MULTILINE)


def skip_reasons(output: str) -> list[str]:
    """Why tests were left out, a line each."""
    found = SKIPPED.finditer(output)
    return [f"SKIPPED {each['test']}: {each['why']}" if each["test"] else each[0] for each in found]


def run_suites(
    suites: Sequence[Suite], judge: Judge = judge_by_status, processors: int | None = None
) -> list[Outcome]:
    watch = Watch(ROOT, watched_folders(ROOT))
    try:
        return Runner(memory(), watch, judge).run(suites, processors or os.cpu_count() or 2)
    finally:
        watch.close()


# Steps of CI that are one suite each, after `make setup`: `make NAME`. What a step may find built
# and leave unopened is said.
NATIVE = (
    "cmake",
    "cpp",
    "python/src",
    "python/CMakeLists.txt",
    "CMakeLists.txt",
    "CMakePresets.json",
)
WHEEL = ("python/corro", "python/horovod", "pyproject.toml", "README.md", "LICENSE", "Makefile")
STEPS = {
    "demo": (),
    "install-test": (*NATIVE, *WHEEL, "tests/install"),
    "docs": ("docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples"),
    "kube-page": ("tests/kube", "deploy", "docs/kubernetes.md", "examples"),
}
MOST_DEMO_SECONDS = 240
ACCURACY = re.compile(r"^demo: accuracy=([\d.]+)", re.MULTILINE)
SECONDS = re.compile(r"^demo: .* seconds=([\d.]+)", re.MULTILINE)


def judge_step(suite: Suite, status: int, output: str) -> tuple[int, dict[str, str]]:
    """Shows the output of a step that passed. The demo has to have learned, and in time."""
    if status:
        return status, {}
    print(output, end="", flush=True)
    if suite.name == "make demo":
        accuracy, seconds = ACCURACY.search(output), SECONDS.search(output)
        if not accuracy or float(accuracy[1]) < 0.9:
            print("demo: accuracy below 0.9", flush=True)
            return 1, {}
        if not seconds or float(seconds[1]) >= MOST_DEMO_SECONDS:
            print(f"demo: above {MOST_DEMO_SECONDS} s", flush=True)
            return 1, {}
    return status, {}


def main(argv: Sequence[str]) -> int:
    [name] = argv
    make = shutil.which("make") or "make"
    [outcome] = run_suites(
        [Suite(f"make {name}", (make, name), reads=STEPS[name], venv=".venv")], judge_step
    )
    return outcome.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
