"""Runs torch's own tests of torch.distributed over Gloo and over corro, and compares the results.

The tests are those of the installed torch (torch.testing._internal.distributed.distributed_test).
Each combination of a back end and a number of ranks has one worker process, which imports torch
once and forks the ranks of every test. The worker writes a line of JSON before and after each
test. A test that takes too long is ended by torch's own time limit; if even that hangs, or the
worker dies, this program ends the worker, counts the test as failed and starts a new worker for
the tests that are left. `--resume` keeps the results of an earlier run that was interrupted.

corro is counted as what Gloo counts as: PATCHES says how.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib.util
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[2]
PATCHES = """\
For the back end corro the tests are imported with BACKEND=gloo, so that what is skipped is decided
as for Gloo. Then BACKEND becomes corro, which still equals "gloo" where a test compares it, and the
lists of back ends with profiler events get corro.
Ranks are forked from a process that has imported torch, as in torch's test_distributed_fork.py.
Where the package expecttest is missing unittest.TestCase stands for its TestCase, for both."""
# Seconds after torch's own limit, for the worker to end the ranks and to report.
GRACE = 30
Result = dict[str, Any]


class CountedAsGloo(str):
    """The name of a back end that also equals Gloo's."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str(self) == other or other == "gloo"

    def __ne__(self, other: object) -> bool:
        return not self == other


def suite_class(backend: str) -> type[unittest.TestCase]:
    """Imports torch's tests and returns a class whose tests fork their ranks."""
    if importlib.util.find_spec("expecttest") is None:
        stand_in: Any = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    os.environ["BACKEND"] = "gloo"
    from torch.testing._internal.distributed import distributed_test as theirs

    os.environ["BACKEND"] = backend
    theirs.BACKEND = CountedAsGloo(backend)
    if backend != "gloo":
        theirs.PROFILING_SUPPORTED_BACKENDS.append(backend)
        theirs.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(backend)

    class TorchSuite(theirs.TestDistBackend, theirs.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._fork_ranks()

        def _fork_ranks(self) -> None:
            import torch.multiprocessing as processes

            self._start_processes(processes.get_context("fork").Process)

    return TorchSuite


def first_line(trace: str) -> str:
    """Returns the line of the exception in what torch says about a failed rank."""
    first_rank = re.split(r"^Process \d+ exited with error code", trace, flags=re.M)[:2][-1]
    frames = list(re.finditer(r"^  File .*$", first_rank, flags=re.M))
    rest = first_rank[frames[-1].end() :] if frames else first_rank
    lines = [line for line in rest.splitlines() if line and not line.startswith(" ")]
    return (lines or trace.strip().splitlines() or ["no reason given"])[0][:300]


def outcome(result: unittest.TestResult) -> tuple[str, str]:
    problems = result.errors + result.failures
    if problems:
        return "failed", first_line(problems[0][1])
    if result.skipped:
        return "skipped", result.skipped[0][1]
    return "passed", ""


def work(backend: str, seconds: int, names: Sequence[str], report: TextIO) -> None:
    """Runs the tests, or lists them if there are no names; one line of JSON before and after."""
    folder = tempfile.TemporaryDirectory()
    meeting = Path(folder.name) / "init"  # Where a test's ranks meet again.
    os.environ["INIT_METHOD"] = f"file://{meeting}"
    suite = suite_class(backend)
    if not names:
        listed = unittest.defaultTestLoader.getTestCaseNames(suite)
        report.write(json.dumps({"tests": listed}) + "\n")
        return
    from torch.testing._internal import common_distributed

    common_distributed.TIMEOUT_DEFAULT = seconds
    common_distributed.TIMEOUT_OVERRIDE.clear()
    for name in names:
        report.write(json.dumps({"begun": name}) + "\n")
        report.flush()
        meeting.unlink(missing_ok=True)
        begun, result = time.monotonic(), unittest.TestResult()
        suite(name).run(result)
        status, reason = outcome(result)
        line = {"test": name, "status": status, "reason": reason}
        report.write(json.dumps(line | {"seconds": round(time.monotonic() - begun, 1)}) + "\n")
        report.flush()


class Worker:
    """A process that runs tests, and the lines that it writes."""

    def __init__(
        self, backend: str, ranks: int, seconds: int, names: Sequence[str], log: Path
    ) -> None:
        reader, writer = os.pipe()
        command = [sys.executable, __file__, "--worker", backend, str(seconds), str(writer)]
        # No `corro run` around it: the ranks meet in torch's store, as under torchrun.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CORRO_")} | {
            "WORLD_SIZE": str(ranks),
            "OMP_NUM_THREADS": "1",
        }
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, *names],
                env=environment,
                pass_fds=[writer],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        os.close(writer)
        self._reader = reader
        self._selector = selectors.DefaultSelector()
        self._selector.register(reader, selectors.EVENT_READ)

    def lines(self, limit: float) -> Iterator[Result]:
        """Yields lines until the worker ends, or says nothing for so many seconds."""
        rest = b""
        while self._selector.select(limit):
            data = os.read(self._reader, 1 << 16)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            yield from map(json.loads, whole)

    def end(self) -> None:
        """Ends the worker and its ranks: they are the session that it leads."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        os.close(self._reader)


class Run:
    """All tests of one back end with one number of ranks."""

    def __init__(self, backend: str, ranks: int, options: argparse.Namespace) -> None:
        self.backend, self.ranks, self._options = backend, ranks, options
        self._log = options.out.with_suffix(f".{backend}.{ranks}.log")
        self._partial = options.out.with_suffix(f".{backend}.{ranks}.partial")
        self.results: dict[str, Result] = {}
        if not options.resume:
            self._log.unlink(missing_ok=True)
            self._partial.unlink(missing_ok=True)
        elif self._partial.exists():
            kept = map(json.loads, self._partial.read_text().splitlines())
            self.results = {result["test"]: result for result in kept}

    def run(self) -> None:
        names = self._names()
        left = [name for name in names if name not in self.results]
        while left:
            self._run_some(left, len(names))
            left = [name for name in left if name not in self.results]
        self.results = {name: self.results[name] for name in names}

    def _worker(self, names: Sequence[str]) -> Worker:
        return Worker(self.backend, self.ranks, self._options.timeout, names, self._log)

    def _names(self) -> list[str]:
        worker = self._worker([])
        tests = [line["tests"] for line in worker.lines(600)]
        worker.end()
        if not tests:
            sys.exit(f"torch_suite: torch's tests could not be listed: see {self._log}")
        pattern = f"*{self._options.k}*"
        return [name for name in tests[0] if fnmatch.fnmatchcase(name, pattern)]

    def _run_some(self, names: Sequence[str], total: int) -> None:
        """Runs tests until all have run, or one takes the worker with it."""
        worker, current = self._worker(names), names[0]
        try:
            for line in worker.lines(self._options.timeout + GRACE):
                current = line.get("begun", "")
                if "test" in line:
                    self._note(line, total)
        finally:
            worker.end()
        if current:
            reason = f"the worker died, or was ended {GRACE} s after the test's time limit"
            self._note({"test": current, "status": "failed", "reason": reason}, total)

    def _note(self, result: Result, total: int) -> None:
        self.results[result["test"]] = result
        with self._partial.open("a") as partial:
            partial.write(json.dumps(result) + "\n")
        if result["status"] != "skipped" or self._options.verbose:
            head = f"{self.backend} {self.ranks} ranks {len(self.results)}/{total}"
            tail = f"{result.get('seconds', '?')} s {result['reason']}"
            print(f"{head} {result['status']:7} {result['test']} {tail}"[:200], flush=True)

    def counts(self) -> Result:
        by_status: dict[str, list[Result]] = {"passed": [], "failed": [], "skipped": []}
        for result in self.results.values():
            by_status[result["status"]].append(result)
        return {
            "backend": self.backend,
            "ranks": self.ranks,
            **{status: len(results) for status, results in by_status.items()},
            "failures": {result["test"]: result["reason"] for result in by_status["failed"]},
        }


def table(runs: Sequence[Result]) -> str:
    lines = [f"{'back end':10} {'ranks':>5} {'passed':>7} {'failed':>7} {'skipped':>8}"]
    for run in runs:
        counts = f"{run['passed']:7} {run['failed']:7} {run['skipped']:8}"
        lines.append(f"{run['backend']:10} {run['ranks']:5} {counts}")
    for run in runs:
        for test, reason in run["failures"].items():
            lines.append(f"{run['backend']} {run['ranks']}: {test}: {reason}")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Compares corro with Gloo by torch's own tests.")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--backend", nargs="+", default=["gloo", "corro"])
    parser.add_argument("-k", default="", help="only tests whose name has this, or fits it as glob")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one test")
    parser.add_argument("--resume", action="store_true", help="keep what an earlier run has done")
    parser.add_argument("--verbose", action="store_true", help="show skipped tests, too")
    parser.add_argument("--out", type=Path, default=ROOT / "build/compat/torch.json")
    options = parser.parse_args(argv)

    options.out.parent.mkdir(parents=True, exist_ok=True)
    runs = []
    for ranks in options.ranks:
        for backend in options.backend:
            run = Run(backend, ranks, options)
            run.run()
            runs.append(run.counts())
            report = {"torch": torch_version(), "how": PATCHES, "k": options.k, "runs": runs}
            options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{PATCHES}\n\ntorch {torch_version()}\n{table(runs)}\nwritten: {options.out}")
    return 0


def torch_version() -> str:
    from importlib.metadata import version

    return version("torch")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        _, _, backend, seconds, writer, *names = sys.argv
        with os.fdopen(int(writer), "w") as report:
            work(backend, int(seconds), names, report)
    else:
        sys.exit(main(sys.argv[1:]))
